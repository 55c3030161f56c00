"""Ids must be bit-identical whatever speculation, concurrency, chunking, prefix reuse do.

Greedily or, with the flags of sampling, with a seed (rule `coupled`): all answers are sampled
alike. The reference of each prompt is generated alone, cold, prefilled whole and without
speculation. Then, one request at a time: the same prompt warm, and the conversation's next turn
(its answer of half the length) on its own K/V against that turn cold. Two at a time: a prefix
copied from a slot that is running. Four at a time: every variant of `variants.MIXED`, four prompts
mixed. All of it runs with each drafter that is asked for. Trees (`bench.trees`) are a part of their
own: lossless up to near ties.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench.comparison import Comparison
from bench.drafter_settings import ALL, NGRAM, branching, parse_drafters
from bench.ledger import Ledger
from bench.prompts import Question
from bench.report import Findings, Promise, Table, none_of
from bench.sampling import add_sampling_arguments, describe, sampling_of, settings_of
from bench.setup import Setup, progress
from bench.texts import Texts
from bench.trees import NEAR_TIE, TreeFindings, compare_trees
from bench.variants import CONCURRENCY, MIXED
from gateway.engine.engine import Engine
from gateway.engine.options import EngineOptions
from models.errors import UserError
from models.sampling.parameters import Sampling

_QUICK = 3
"""With --quick every third variant runs, another third with each group of prompts."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--max-tokens", type=int, default=128, metavar="N", help="of each answer; default: 128"
    )
    parser.add_argument(
        "--drafters",
        default=NGRAM,
        metavar="NAME,...",
        help=f"everything runs with each of them, `{ALL}`: those of the package; default: {NGRAM}",
    )
    parser.add_argument(
        "--trees",
        action=argparse.BooleanOptionalAction,
        help="tree drafts as well; default: not with --quick",
    )
    add_sampling_arguments(parser)


def run(parsed: argparse.Namespace, setup: Setup) -> Findings:
    if parsed.max_tokens < 1:
        raise UserError("--max-tokens must be at least 1.", code="usage")
    trees = not setup.quick if parsed.trees is None else parsed.trees
    drafters = parse_drafters(parsed.drafters, setup.package.manifest)
    asked = _Asked(parsed.max_tokens, sampling_of(parsed), trees, drafters)
    return asyncio.run(_run(setup, asked))


@dataclass(frozen=True, slots=True)
class _Asked:
    max_tokens: int
    sampling: Sampling
    trees: bool
    drafters: Sequence[str]


async def _run(setup: Setup, asked: _Asked) -> Findings:
    context, questions, too_long = _plan(setup, asked.max_tokens)
    chains, trees = Ledger(), _trees(setup, asked)
    options = EngineOptions(slots=CONCURRENCY, threads=setup.threads, context=context)
    engine = await Engine.start(setup.package, options, progress)
    try:
        comparison = Comparison(engine, asked.sampling, asked.max_tokens)
        started = time.monotonic()
        for number, group in enumerate(_groups(questions)):
            cases = [await comparison.alone(item, chains, asked.drafters) for item in group]
            variants = MIXED[number % _QUICK :: _QUICK] if setup.quick else MIXED
            # Neighbours run together: different drafters beside one another.
            every = [variant.by(drafter) for variant in variants for drafter in asked.drafters]
            await comparison.mixed(cases, every, chains)
            if trees is not None and trees.unavailable is None:
                for drafter in branching(asked.drafters, setup.package.manifest):
                    await compare_trees(comparison, cases, trees.ledger, chains, drafter)
            await comparison.settle()
            done = min((number + 1) * CONCURRENCY, len(questions))
            _progress(done, len(questions), chains, time.monotonic() - started)
        exact = engine.exact
    finally:
        await engine.close()
    findings = _findings(chains, exact, len(questions), too_long, trees)
    settings = {
        "max_tokens": asked.max_tokens,
        "context": context,
        "rule": "coupled",
        "drafters": list(asked.drafters),
        "trees": asked.trees,
        **settings_of(asked.sampling),
    }
    shown = Table(f"Sampling: {describe(asked.sampling)}; rule coupled", (), ())
    return Findings(settings, findings.figures, findings.promises, [shown, *findings.tables])


def _trees(setup: Setup, asked: _Asked) -> TreeFindings | None:
    """None where they were not asked for."""
    if not asked.trees:
        return None
    target = setup.package.manifest.target
    missing = None if target.tree_graphs else "the package has no tree graphs"
    return TreeFindings(Ledger(), NEAR_TIE[target.weight_type], missing)


def _progress(done: int, questions: int, chains: Ledger, spent: float) -> None:
    left = spent / done * (questions - done)
    progress(
        f"exactness: {done} of {questions} prompts, {chains.runs} runs,"
        f" {len(chains.mismatches)} mismatches, {spent:.0f} s, about {left:.0f} s left"
    )


def _groups(questions: Sequence[Question]) -> Iterator[Sequence[Question]]:
    for start in range(0, len(questions), CONCURRENCY):
        yield questions[start : start + CONCURRENCY]


def _plan(setup: Setup, max_tokens: int) -> tuple[int, list[Question], list[str]]:
    """Tokens a slot needs, the prompts that fit, and the ids of those that do not."""
    texts = Texts(setup.package)
    most = setup.package.manifest.target.context_length
    needed, fitting, too_long = 0, [], []
    for question in setup.questions:
        if len(texts.ids(question.turns[0])) >= most:
            too_long.append(question.id)
            continue
        fitting.append(question)
        needed = max(needed, len(texts.ids(*question.turns[:2])) + 2 * max_tokens)
    if not fitting:
        raise UserError(
            f"every prompt is longer than the package's context of {most} tokens.",
            code="context_length_exceeded",
            param="prompts",
        )
    return min(most, -(-needed // 256) * 256), fitting, too_long


def _findings(
    ledger: Ledger,
    exact: bool,
    prompts: int,
    too_long: Sequence[str],
    trees: TreeFindings | None,
) -> Findings:
    promises = [
        none_of("mismatches", len(ledger.mismatches)),
        none_of("probe not bit-identical at load", int(not exact)),
        none_of("warm and copied prefixes not found", ledger.prefixes_missed),
        Promise("draft tokens verified", float(ledger.drafted), ">=", 1.0),
    ]
    totals = Table(
        "Compared with the reference",
        ("prompts", "runs", "tokens", "mismatches"),
        [(str(prompts), str(ledger.runs), str(ledger.tokens), str(len(ledger.mismatches)))],
    )
    tables = [ledger.by_variant(), *ledger.shown_mismatches(), totals]
    figures = {"prompts": prompts, "left_out": list(too_long), **ledger.figures()}
    if trees is not None:
        promises += trees.promises()
        tables += trees.tables()
        figures["trees"] = trees.figures()
    if too_long:
        rows = [(question,) for question in too_long]
        tables.insert(0, Table("Left out, longer than the context", ("prompt",), rows))
    return Findings({}, figures, promises, tables)
