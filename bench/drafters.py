"""The package's drafters, side by side: acceptance, survival by depth, times, by task.

Each prompt is answered in every way within moments, in alternating order, through a real
WebSocket; everything is compared with speculation off in the same run. Answers are drawn greedily
and at a temperature, with one seed. Chains must give the answers of off, token for token.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bench.client import Client, WireAnswer, connected
from bench.drafter_cells import EVERY, Drafted, DrafterCell, drafter_cells
from bench.drafter_settings import ALL, PLAIN, Way, drafters_of, parse_ways
from bench.drafting import OFF
from bench.gateway_process import running_gateway
from bench.prompts import Question, by_task
from bench.report import Findings, Promise, Table, milliseconds, none_of, number
from bench.setup import Setup, progress
from models.errors import UserError
from models.package import DrafterSpec
from models.sampling.parameters import Sampling

SPREAD_OVER = by_task

FEWEST_TOKENS = 8
"""Shorter answers are not timed: they say more about the first token than about the others."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--list", action="store_true", help="only say which drafters the package has"
    )
    parser.add_argument(
        "--drafters",
        default=ALL,
        metavar="NAME[:LENGTH[xBRANCHES]],...",
        help="what to measure, as in ngram:8,eagle3:8x4,cascade:auto; default: all",
    )
    parser.add_argument(
        "--temperatures", default="0,0.8", metavar="T,...", help="default: 0,0.8 (0 is greedy)"
    )
    parser.add_argument("--top-p", type=float, default=1.0, metavar="P", help="where T is not 0")
    parser.add_argument("--seed", type=int, default=0, metavar="S")
    parser.add_argument("--rule", default="coupled", choices=("coupled", "classic"))
    parser.add_argument(
        "--max-tokens", type=int, default=96, metavar="N", help="of each answer; default: 96"
    )
    parser.add_argument(
        "--repeats", type=int, default=1, metavar="N", help="answers in each way; default: 1"
    )


@dataclass(frozen=True, slots=True)
class _Asked:
    ways: Sequence[Way]
    samplings: Sequence[Sampling]
    rule: str
    max_tokens: int
    repeats: int


def run(parsed: argparse.Namespace, setup: Setup) -> Findings:
    if parsed.max_tokens < FEWEST_TOKENS or parsed.repeats < 1:
        raise UserError(
            f"--max-tokens must be at least {FEWEST_TOKENS} and --repeats at least 1.",
            code="usage",
        )
    samplings = _samplings(parsed.temperatures, parsed.top_p, parsed.seed)
    ways = parse_ways(parsed.drafters, setup.package.manifest)
    listed = _listed(setup)
    if parsed.list:
        return Findings({}, {"drafters": list(drafters_of(setup.package.manifest))}, [], [listed])
    asked = _Asked([PLAIN, *ways], samplings, parsed.rule, parsed.max_tokens, parsed.repeats)
    answers = asyncio.run(_measure(setup, asked))
    cells = drafter_cells(answers)
    settings = {
        "ways": [way.name for way in ways],
        "temperatures": [sampling.temperature for sampling in samplings],
        "top_p": parsed.top_p,
        "seed": parsed.seed,
        "rule": parsed.rule,
        "max_tokens": parsed.max_tokens,
        "repeats": parsed.repeats,
    }
    figures = {"cells": [_plain(cell) for cell in cells], "answers": [_plain(a) for a in answers]}
    tables = [listed, *(_table(cells, s.temperature) for s in samplings)]
    return Findings(settings, figures, _promises(cells, ways, parsed.rule), tables)


def _samplings(text: str, top_p: float, seed: int) -> list[Sampling]:
    try:
        temperatures = [float(part) for part in text.split(",")]
    except ValueError:
        raise UserError(
            f"--temperatures {text!r}: numbers with commas between them, as in 0,0.8.",
            code="usage",
            param="temperatures",
        ) from None
    if len(set(temperatures)) < len(temperatures):
        raise UserError("--temperatures has one twice.", code="usage", param="temperatures")
    return [
        Sampling(temperature=temperature, top_p=top_p if temperature else 1.0, seed=seed)
        for temperature in temperatures
    ]


async def _measure(setup: Setup, asked: _Asked) -> list[Drafted]:
    answers: list[Drafted] = []
    async with running_gateway(setup) as gateway, connected(gateway.url) as client:
        # The first answers of a process are slower: graphs are loaded, pages touched.
        for way in asked.ways:
            await _ask(client, "Count to ten.", way, asked.samplings[0], asked)
        for done, question in enumerate(setup.questions, start=1):
            for repeat in range(asked.repeats):
                order = asked.ways if (repeat + done) % 2 else asked.ways[::-1]
                for sampling in asked.samplings:
                    for way in order:
                        answer = await _ask(client, question.turns[0], way, sampling, asked)
                        answers.append(_drafted(question, way, sampling, repeat, answer))
            progress(f"drafters: {done} of {len(setup.questions)} prompts")
    return answers


async def _ask(
    client: Client, text: str, way: Way, sampling: Sampling, asked: _Asked
) -> WireAnswer:
    wire = way.wire if way.drafter == OFF else {**way.wire, "rule": asked.rule}
    return await client.ask(
        text, max_tokens=asked.max_tokens, sampling=sampling, speculation=wire, provenance=True
    )


def _drafted(
    question: Question, way: Way, sampling: Sampling, repeat: int, answer: WireAnswer
) -> Drafted:
    timings, timed = answer.timings, answer.tokens >= FEWEST_TOKENS
    overhead = None
    if timed and timings["tpot_ms"] is not None:
        decoding = timings["tpot_ms"] * (answer.tokens - 1)
        overhead = decoding - timings["draft_ms"] - timings["verify_ms"]
    return Drafted(
        question=question.id,
        task=question.task,
        way=way.name,
        temperature=sampling.temperature,
        repeat=repeat,
        ids=answer.ids,
        tpot_ms=answer.tpot_ms if timed else None,
        rounds=timings["rounds"],
        advanced=(timings["tau"] or 0.0) * timings["rounds"],
        draft_n=timings["draft_n"],
        accepted=timings["draft_n_accepted"],
        depths=tuple((verified, accepted) for verified, accepted in timings["depths"]),
        draft_ms=timings["draft_ms"],
        verify_ms=timings["verify_ms"],
        overhead_ms=overhead,
    )


def _promises(cells: Sequence[DrafterCell], ways: Sequence[Way], rule: str) -> list[Promise]:
    """Chains under the rule `coupled` never change an answer."""
    chains = {way.name for way in ways if way.branches == 1}
    if rule != "coupled" or not chains:
        return []
    own = [cell for cell in cells if cell.way in chains and cell.task != EVERY]
    changed = [cell for cell in own if cell.identical is not None and cell.identical < 1.0]
    note = ", ".join(sorted({f"{cell.way} ({cell.task})" for cell in changed}))
    return [none_of("chains with answers other than off's", len(changed), note)]


def _listed(setup: Setup) -> Table:
    specs = {spec.kind: spec for spec in setup.package.manifest.drafters}
    rows = [_described(name, specs.get(name)) for name in drafters_of(setup.package.manifest)]
    header = ("drafter", "checkpoint", "reads", "longest", "vocabulary", "own layers", "trees")
    return Table("Drafters of the package", header, rows)


def _described(name: str, spec: DrafterSpec | None) -> tuple[str, ...]:
    if spec is None:
        return (name, "-", "tokens", "-", "-", "-", "yes")
    layers = f"{len(spec.kept_layers)} shared" if spec.kept_layers else str(spec.layers)
    trees = "yes" if spec.tree_graphs or spec.kind == "medusa" else "no"
    reads = spec.reads or "tokens"
    checkpoint = f"{spec.checkpoint} {spec.sha256[:8]}"
    return (name, checkpoint, reads, str(spec.longest), str(spec.draft_vocab), layers, trees)


def _table(cells: Sequence[DrafterCell], temperature: float) -> Table:
    rows = [
        (
            cell.way,
            cell.task,
            str(cell.prompts),
            number(cell.tau),
            number(cell.alpha),
            " ".join(number(share) for share in cell.survival[:6]) or "-",
            milliseconds(cell.draft_ms),
            milliseconds(cell.verify_ms),
            milliseconds(cell.overhead_ms),
            milliseconds(cell.tpot_ms),
            number(cell.ratio),
            number(cell.identical, 3),
        )
        for cell in cells
        if cell.temperature == temperature
    ]
    header = (
        "way",
        "task",
        "prompts",
        "tau",
        "alpha",
        "survival by depth",
        "draft ms",
        "verify ms",
        "other ms",
        "TPOT ms",
        "of off",
        "same as off",
    )
    drawn = "greedy" if temperature == 0 else f"temperature {temperature:g}"
    return Table(f"{drawn}; draft, verify and other are milliseconds of a round", header, rows)


def _plain(item: Drafted | DrafterCell) -> dict[str, Any]:
    return {name: getattr(item, name) for name in type(item).__slots__}
