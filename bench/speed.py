"""Time per token through a real WebSocket, by draft length, rule and category.

Each prompt is answered in every setting within moments, in alternating order, so that a machine
that gets slower gets slower for all of them. All answers are drawn with the same parameters and
the same seed.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.cells import Cell, Sample, cells_of, record
from bench.client import Client, GatewayError, WireAnswer, connected
from bench.drafting import (
    AUTO,
    COUPLED,
    LOSSLESS,
    Setting,
    parse_lengths,
    parse_rules,
    settings_for,
)
from bench.gateway_process import running_gateway
from bench.identity import different, promises_of_identity
from bench.prompts import REPEATING_CATEGORIES, Question
from bench.report import Findings, Promise, Table, milliseconds, number
from bench.sampling import add_sampling_arguments, describe, sampling_of, settings_of
from bench.setup import Setup, progress
from models.errors import UserError
from models.sampling.parameters import Sampling

NEVER_SLOWER = 1 / 0.97
"""Ratio of times per token, `auto` to off, on any category."""

REPEATING = 0.4
"""The same of greedy answers, on categories where they repeat their prompts."""

FEWEST_TOKENS = 8
"""Shorter answers say more about the first token than about the others."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--lengths",
        default="0,auto",
        metavar="0,auto[,N...]",
        help="of drafts, 0 for none, which everything is compared with; default: 0,auto",
    )
    parser.add_argument(
        "--rules",
        default=COUPLED,
        metavar="RULE,...",
        help=f"of {', '.join(LOSSLESS)}; default: {COUPLED}",
    )
    parser.add_argument(
        "--branches",
        type=int,
        default=1,
        metavar="N",
        help="continuations in a draft, a tree with more than 1; default: 1",
    )
    parser.add_argument(
        "--max-tokens", type=int, default=192, metavar="N", help="of each answer; default: 192"
    )
    parser.add_argument(
        "--repeats",
        type=int,
        default=3,
        metavar="N",
        help="answers of each prompt in each setting; default: 3, with --quick 1",
    )
    parser.add_argument(
        "--repeating",
        metavar="CATEGORY,...",
        help=f"categories promised {REPEATING}x, greedily; default: copy, edit and extract",
    )
    add_sampling_arguments(parser)


@dataclass(frozen=True, slots=True)
class _Asked:
    settings: Sequence[Setting]
    sampling: Sampling
    repeats: int
    max_tokens: int


def run(parsed: argparse.Namespace, setup: Setup) -> Findings:
    lengths, rules = parse_lengths(parsed.lengths), parse_rules(parsed.rules)
    repeats = 1 if setup.quick else parsed.repeats
    if repeats < 1 or parsed.max_tokens < FEWEST_TOKENS:
        raise UserError(
            f"--repeats must be at least 1 and --max-tokens at least {FEWEST_TOKENS}.",
            code="usage",
        )
    settings = settings_for(lengths, rules, parsed.branches)
    _check_trees(setup, parsed.branches)
    asked = _Asked(settings, sampling_of(parsed), repeats, parsed.max_tokens)
    greedy = asked.sampling.greedy
    repeating = _repeating(parsed.repeating, setup.questions, greedy=greedy)
    measured = asyncio.run(_measure(setup, asked))
    findings = evaluate(measured, settings, repeating, greedy=greedy)
    described = {
        "lengths": [length.name for length in lengths],
        "rules": rules,
        "branches": parsed.branches,
        "repeats": repeats,
        "max_tokens": parsed.max_tokens,
        "repeating": sorted(repeating),
        "sampling": settings_of(asked.sampling),
    }
    shown = Table(_title(asked.sampling, parsed.branches), (), ())
    tables = [shown, *findings.tables]
    return Findings(described, findings.figures, findings.promises, tables)


def _check_trees(setup: Setup, branches: int) -> None:
    if branches > 1 and not setup.package.manifest.target.tree_graphs:
        raise UserError(
            "the package has no graphs for trees; --branches must be 1. Export it again.",
            code="usage",
            param="branches",
        )


def _title(sampling: Sampling, branches: int) -> str:
    trees = f"; drafts with up to {branches} branches" if branches > 1 else ""
    return f"Sampling: {describe(sampling)}{trees}"


def _repeating(given: str | None, questions: Iterable[Question], *, greedy: bool) -> frozenset[str]:
    present = {question.category for question in questions}
    if given is None:
        return REPEATING_CATEGORIES & present if greedy else frozenset()
    if not greedy:
        raise UserError(
            f"--repeating promises {REPEATING}x, which only holds of greedy answers: leave it out,"
            " or --temperature.",
            code="usage",
            param="repeating",
        )
    named = frozenset(part.strip() for part in given.split(","))
    if not named <= present:
        unknown = ", ".join(sorted(named - present))
        raise UserError(
            f"--repeating names {unknown}; the prompts have {', '.join(sorted(present))}.",
            code="usage",
            param="repeating",
        )
    return named


async def _measure(setup: Setup, asked: _Asked) -> list[Sample]:
    samples: list[Sample] = []
    async with running_gateway(setup) as gateway, connected(gateway.url) as client:
        # The first answers of a process are slower: pages are touched, bindings made.
        for setting in asked.settings:
            await _ask(client, "Count to ten.", setting, asked.sampling, 32)
        for done, question in enumerate(setup.questions, start=1):
            for repeat in range(asked.repeats):
                order = asked.settings if (repeat + done) % 2 else asked.settings[::-1]
                for setting in order:
                    text = question.turns[0]
                    answer = await _ask(client, text, setting, asked.sampling, asked.max_tokens)
                    samples.append(_sample(question, setting, repeat, answer))
            progress(f"speed: {done} of {len(setup.questions)} prompts")
    return samples


async def _ask(
    client: Client, text: str, setting: Setting, sampling: Sampling, max_tokens: int
) -> WireAnswer:
    answer = await client.ask(
        text,
        max_tokens=max_tokens,
        sampling=sampling,
        speculation=setting.wire,
        provenance=True,
    )
    check_rule(setting, answer.timings)
    return answer


def check_rule(setting: Setting, timings: Mapping[str, Any]) -> None:
    """Raises `GatewayError` where the gateway used another rule, or says another thing of it."""
    used, lossless = timings["rule"], timings["lossless"]
    if setting.rule is not None and used != setting.rule:
        raise GatewayError(f"asked for the rule {setting.rule}, it used {used}")
    if lossless is not setting.lossless:
        verified = "speculation off" if setting.rule is None else f"the rule {setting.rule}"
        raise GatewayError(f"it says lossless {str(lossless).lower()} of an answer with {verified}")


def _sample(question: Question, setting: Setting, repeat: int, answer: WireAnswer) -> Sample:
    timings = answer.timings
    return Sample(
        question=question.id,
        category=question.category,
        setting=setting.name,
        repeat=repeat,
        ids=answer.ids,
        tpot_ms=answer.tpot_ms if answer.tokens >= FEWEST_TOKENS else None,
        server_tpot_ms=timings["tpot_ms"],
        rounds=timings["rounds"],
        tau=timings["tau"],
        draft_n=timings["draft_n"],
        draft_n_accepted=timings["draft_n_accepted"],
        lossless=timings["lossless"],
        exact=timings["exact"],
    )


def evaluate(
    samples: Sequence[Sample],
    settings: Sequence[Setting],
    repeating: frozenset[str],
    *,
    greedy: bool = True,
) -> Findings:
    """Figures and promises of `samples`, with the settings and limits of `run`."""
    cells = cells_of(samples, settings)
    short = sorted({sample.question for sample in samples if sample.tpot_ms is None})
    promises = promises_of_identity(samples, settings, cells, greedy=greedy)
    promises += [
        _promise(cell, repeating) for cell in cells if (cell.length, cell.rule) == (AUTO, COUPLED)
    ]
    figures: dict[str, Any] = {
        "cells": [record(cell) for cell in cells],
        "samples": [record(sample) for sample in samples],
        "different": different(samples, [item for item in settings if item.identical]),
        "too_short": short,
    }
    return Findings({}, figures, promises, _tables(cells, short))


def _promise(cell: Cell, repeating: frozenset[str]) -> Promise:
    bound = REPEATING if cell.category in repeating else NEVER_SLOWER
    timed = cell.ratio is not None
    note = "" if timed else f"no answer has {FEWEST_TOKENS} tokens"
    name = f"{cell.category}: auto / off"
    return Promise(name, cell.ratio, "<=", round(bound, 3), "x", note, applies=timed)


def _tables(cells: Sequence[Cell], short: Sequence[str]) -> list[Table]:
    rows = [
        (
            cell.category,
            f"{cell.setting} ({cell.mark})" if cell.mark else cell.setting,
            str(cell.prompts),
            str(cell.tokens),
            milliseconds(cell.tpot_ms),
            milliseconds(cell.server_tpot_ms),
            number(cell.ratio),
            number(cell.tau),
            number(cell.alpha),
            str(cell.rounds),
            number(cell.identical, 3),
        )
        for cell in cells
    ]
    header = (
        "category",
        "setting",
        "prompts",
        "tokens",
        "TPOT ms",
        "gateway's",
        "of off",
        "tau",
        "alpha",
        "rounds",
        "same as off",
    )
    tables = [Table("Time per token, milliseconds", header, rows)]
    if short:
        title = f"With answers under {FEWEST_TOKENS} tokens, which are not timed"
        tables.insert(0, Table(title, ("prompt",), [(question,) for question in short]))
    return tables
