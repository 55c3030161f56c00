"""Acceptance of rules `classic` and `coupled` side by side, against what mathematics allows.

Through the engine: the n-gram drafter with drafts of fixed length. It is deterministic, so both
rules accept a token with probability p(x), and differ by chance alone. Then one step at a time at
positions of the text that the target sampled: that drafter again, and one that samples, which is
the target itself seeing only the last tokens. There the exact probabilities are known
(`bench.coupling`), and what is measured must agree with them.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from bench.alpha import Drafted, alpha, alpha_error, difference_error
from bench.answers import Answer, generate
from bench.one_step import RULES, OneStep, Rule, Tally, positions
from bench.prompts import spread
from bench.report import Findings, Promise, Table, none_of, number, unjudged
from bench.sampling import add_sampling_arguments, describe, sampling_of, settings_of
from bench.scoring import Scorer
from bench.setup import Setup, progress
from bench.texts import Texts
from gateway.engine.engine import Engine
from gateway.engine.options import EngineOptions
from gateway.engine.requests import GenerationRequest, Speculation
from models.errors import UserError
from models.sampling.parameters import Sampling

STANDARD_ERRORS = 4.0
"""How far a measurement may be off: beyond it by chance once in 16,000."""

FEWEST_ANSWERS = 8
"""With drafts, to tell from how they vary how far chance may take the mean of them."""

LEAST_VARIANCE = 10.0
"""Of a count, for its deviations to be as those of a normal variate."""

LONGEST_PROMPT = 1024
_AT_ONCE = 4
_QUICK_PROMPTS = 10
_QUICK_PART = 25
_QUICK_TOKENS = 32


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_sampling_arguments(parser, temperature=0.8, seed=7)
    for flag, default, meaning in (
        ("--max-tokens", 96, f"of each answer, with --quick at most {_QUICK_TOKENS}"),
        ("--length", 4, "of the n-gram drafts through the engine"),
        ("--window", 32, "tokens that the sampling drafter sees"),
        ("--positions", 2000, f"to measure one step at, with --quick 1 in {_QUICK_PART}"),
        ("--seeds", 16, "trials at each position"),
    ):
        help_text = f"{meaning}; default: {default}"
        parser.add_argument(flag, type=int, metavar="N", default=default, help=help_text)


@dataclass(frozen=True, slots=True)
class _Asked:
    sampling: Sampling
    max_tokens: int
    length: int
    window: int
    positions: int
    seeds: int


Text = tuple[tuple[int, ...], tuple[int, ...]]
"""A prompt and the answer that the target sampled."""


def run(parsed: argparse.Namespace, setup: Setup) -> Findings:
    max_tokens = min(_QUICK_TOKENS, parsed.max_tokens) if setup.quick else parsed.max_tokens
    counts = (max_tokens, parsed.length, parsed.window, parsed.positions, parsed.seeds)
    if min(counts) < 1:
        raise UserError("every count must be at least 1.", code="usage")
    sampling = sampling_of(parsed)
    if sampling.greedy:
        raise UserError("--temperature must be above 0.", code="usage", param="temperature")
    asked = _Asked(sampling, *counts)
    prompts = _prompts(setup, asked)
    answers = asyncio.run(_generate(setup, asked, prompts))
    texts = [
        (prompt, answer.ids)
        for prompt, answer in zip(prompts, answers["coupled"], strict=True)
        if answer.ids
    ]
    one_step = _measure(setup, asked, texts)
    return _findings(asked, answers, one_step)


def _prompts(setup: Setup, asked: _Asked) -> list[tuple[int, ...]]:
    texts = Texts(setup.package)
    most = min(LONGEST_PROMPT, setup.package.manifest.target.context_length - asked.max_tokens)
    few = spread(setup.questions, _QUICK_PROMPTS) if setup.quick else setup.questions
    found = [texts.ids(question.turns[0]) for question in few]
    fitting = [ids for ids in found if len(ids) <= most]
    if not fitting:
        raise UserError(
            f"no prompt has at most {most} tokens to measure acceptance on.",
            code="usage",
            param="prompts",
        )
    return fitting


async def _generate(
    setup: Setup, asked: _Asked, prompts: Sequence[tuple[int, ...]]
) -> dict[Rule, list[Answer]]:
    """The answer to every prompt under each rule."""
    context = max(map(len, prompts)) + asked.max_tokens
    options = EngineOptions(slots=_AT_ONCE, threads=setup.threads, context=max(16, context))
    engine = await Engine.start(setup.package, options, progress)
    places = asyncio.Semaphore(_AT_ONCE)

    async def answer(prompt: tuple[int, ...], rule: Rule) -> Answer:
        async with places:
            speculation = Speculation("ngram", "fixed", asked.length, rule=rule)
            request = GenerationRequest(
                prompt,
                max_tokens=asked.max_tokens,
                sampling=asked.sampling,
                speculation=speculation,
            )
            return await generate(engine, request)

    answers: dict[Rule, list[Answer]] = {}
    try:
        for rule in RULES:
            calls = [answer(prompt, rule) for prompt in prompts]
            answers[rule] = list(await asyncio.gather(*calls))
            progress(f"acceptance: {len(prompts)} answers under rule {rule}")
    finally:
        await engine.close()
    return answers


def _measure(setup: Setup, asked: _Asked, texts: Sequence[Text]) -> OneStep:
    context = max((len(prompt) + len(answer) for prompt, answer in texts), default=1)
    scorer = Scorer(setup.package, setup.threads, max(context, asked.window))
    top_k = setup.package.manifest.target.top_k
    count = max(1, asked.positions // _QUICK_PART) if setup.quick else asked.positions
    one_step = OneStep(asked.sampling, asked.seeds)
    for done, position in enumerate(positions(scorer, texts, count, asked.window, top_k), start=1):
        one_step.at(position)
        if done % 200 == 0:
            progress(f"acceptance: {done} of {count} positions")
    return one_step


def _findings(asked: _Asked, answers: dict[Rule, list[Answer]], one_step: OneStep) -> Findings:
    drafted = {
        rule: [
            Drafted(
                answer.timings.draft_n,
                answer.timings.draft_n_accepted,
                answer.timings.rounds,
                round((answer.timings.tau or 0.0) * answer.timings.rounds),
            )
            for answer in given
        ]
        for rule, given in answers.items()
    }
    settings = {**asdict(asked), "sampling": settings_of(asked.sampling)}
    figures = {"engine": _engine_figures(drafted), "one_step": _one_step_figures(one_step)}
    promises = [_equal(drafted), *_agreements(one_step), *_bounds(one_step)]
    tables = [
        Table(f"Sampling: {describe(asked.sampling)}", (), ()),
        _engine_table(drafted, asked.length),
        _one_step_table(one_step),
        _bounds_table(one_step, asked.window),
    ]
    return Findings(settings, figures, promises, tables)


def _equal(drafted: dict[Rule, list[Drafted]]) -> Promise:
    first, second = (drafted[rule] for rule in RULES)
    name = "n-gram: classic and coupled apart, in standard errors"
    promise = Promise(name, None, "<=", STANDARD_ERRORS)
    fewest = min(sum(answer.verified > 0 for answer in given) for given in (first, second))
    error = difference_error(first, second)
    one, other = alpha(first), alpha(second)
    if fewest < FEWEST_ANSWERS or error is None or one is None or other is None:
        return unjudged(promise, f"{fewest} answers with drafts; it takes {FEWEST_ANSWERS}")
    apart = abs(one - other) / error if error > 0 else 0.0
    return dataclasses.replace(promise, measured=apart)


def _agreements(one_step: OneStep) -> list[Promise]:
    return [
        _agreement(f"one step, {drafter}, {rule}: off its expectation, in standard errors", tally)
        for (drafter, rule), tally in one_step.tallies.items()
    ]


def _agreement(name: str, tally: Tally) -> Promise:
    """Where little was drafted, only what chance cannot do there either is held against a rule."""
    variance = tally.variance
    off = abs(tally.off) / math.sqrt(max(variance, LEAST_VARIANCE))
    promise = Promise(name, off, "<=", STANDARD_ERRORS)
    if variance < LEAST_VARIANCE and promise.held:
        return unjudged(promise, f"too little was drafted: at {len(tally.accepted)} positions")
    return promise


def _bounds(one_step: OneStep) -> list[Promise]:
    count = len(one_step.bounds)
    broken = sum(not bounds.within() for bounds in one_step.bounds)
    above = sum(bounds.listed > bounds.classic + 1e-9 for bounds in one_step.bounds)
    promises = [
        none_of("positions outside (1-TV)/(1+TV) <= coupled <= 1-TV", broken, f"of {count}"),
        none_of("positions where coupled as built is above 1-TV", above, f"of {count}"),
    ]
    return promises if count else [unjudged(item, "no answer has tokens") for item in promises]


def _engine_figures(drafted: dict[Rule, list[Drafted]]) -> dict[str, Any]:
    return {
        rule: {
            "alpha": alpha(answers),
            "alpha_error": alpha_error(answers),
            "answers": [asdict(answer) for answer in answers],
        }
        for rule, answers in drafted.items()
    }


def _one_step_figures(one_step: OneStep) -> list[dict[str, Any]]:
    return [
        {
            "drafter": drafter,
            "rule": rule,
            "positions": len(tally.accepted),
            "trials": tally.trials,
            "rate": tally.rate,
            "expected": tally.expectation,
            "standard_error": tally.error,
        }
        for (drafter, rule), tally in one_step.tallies.items()
        if tally.accepted
    ]


def _engine_table(drafted: dict[Rule, list[Drafted]], length: int) -> Table:
    rows = []
    for rule, answers in drafted.items():
        rounds = sum(answer.rounds for answer in answers)
        advanced = sum(answer.advanced for answer in answers)
        rows.append(
            (
                rule,
                str(len(answers)),
                str(sum(answer.verified for answer in answers)),
                str(sum(answer.accepted for answer in answers)),
                number(alpha(answers), 4),
                number(alpha_error(answers), 4),
                number(advanced / rounds if rounds else None),
            )
        )
    header = ("rule", "answers", "verified", "accepted", "alpha", "standard error", "tau")
    return Table(f"Through the engine: n-gram, length {length}", header, rows)


def _one_step_table(one_step: OneStep) -> Table:
    rows = [
        (
            f"{drafter}, {rule}",
            str(len(tally.accepted)),
            str(tally.trials),
            number(tally.rate, 5),
            number(tally.expectation, 5),
            number(tally.error, 5),
            number(tally.deviation, 1),
        )
        for (drafter, rule), tally in one_step.tallies.items()
        if tally.accepted
    ]
    header = ("", "positions", "seeds", "accepted", "expected", "standard error", "off by")
    return Table("One step at the same positions", header, rows)


def _bounds_table(one_step: OneStep, window: int) -> Table:
    bounds = one_step.bounds
    columns = {
        "(1-TV)/(1+TV), the least of coupled": [item.least_coupled for item in bounds],
        "coupled, every token listed": [item.coupled for item in bounds],
        "coupled as built, unlikely tokens as one": [item.listed for item in bounds],
        "1-TV: classic, the most of any rule": [item.classic for item in bounds],
    }
    rows = [
        (
            name,
            number(float(np.mean(values)), 5),
            *(number(float(part), 3) for part in _parts(values)),
        )
        for name, values in columns.items()
        if values
    ]
    header = ("", "mean", "10 %", "median", "90 %")
    return Table(f"Bounds, drafter that sees {window} tokens", header, rows)


def _parts(values: Sequence[float]) -> Sequence[float]:
    parts: list[float] = np.quantile(values, [0.1, 0.5, 0.9]).tolist()
    return parts
