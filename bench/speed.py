"""Time per token through a real WebSocket, by draft length and category.

Each prompt is answered in every setting within moments, in alternating order, so that a machine
that gets slower gets slower for all of them.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from bench.client import Client, WireAnswer, connected
from bench.drafting import AUTO, OFF, Drafting, parse_lengths
from bench.gateway_process import running_gateway
from bench.prompts import REPEATING_CATEGORIES, Question
from bench.report import Findings, Promise, Table, milliseconds, none_of, number
from bench.setup import Setup, progress
from models.errors import UserError

NEVER_SLOWER = 1 / 0.97
"""Ratio of times per token, `auto` to off, on any category."""

REPEATING = 0.4
"""The same on categories whose answers repeat their prompts."""

FEWEST_TOKENS = 8
"""Shorter answers say more about the first token than about the others."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--lengths", default="0,auto", metavar="0,auto[,N...]")
    parser.add_argument("--max-tokens", type=int, default=192, metavar="N")
    parser.add_argument("--repeats", type=int, default=3, metavar="N")
    parser.add_argument(
        "--repeating",
        metavar="CATEGORY,...",
        help=f"categories promised {REPEATING}x; default: copy, edit and extract",
    )


def run(parsed: argparse.Namespace, setup: Setup) -> Findings:
    settings = parse_lengths(parsed.lengths)
    repeats = 1 if setup.quick else parsed.repeats
    if repeats < 1 or parsed.max_tokens < FEWEST_TOKENS:
        raise UserError(
            f"--repeats must be at least 1 and --max-tokens at least {FEWEST_TOKENS}.",
            code="usage",
        )
    repeating = _repeating(parsed.repeating, setup.questions)
    measured = asyncio.run(_measure(setup, settings, repeats, parsed.max_tokens))
    findings = evaluate(measured, settings, repeating)
    described = {
        "lengths": [setting.name for setting in settings],
        "repeats": repeats,
        "max_tokens": parsed.max_tokens,
        "repeating": sorted(repeating),
    }
    return Findings(described, findings.figures, findings.promises, findings.tables)


def _repeating(given: str | None, questions: Iterable[Question]) -> frozenset[str]:
    present = {question.category for question in questions}
    if given is None:
        return REPEATING_CATEGORIES & present
    named = frozenset(part.strip() for part in given.split(","))
    if not named <= present:
        unknown = ", ".join(sorted(named - present))
        raise UserError(
            f"--repeating names {unknown}; the prompts have {', '.join(sorted(present))}.",
            code="usage",
            param="repeating",
        )
    return named


@dataclass(frozen=True, slots=True)
class Sample:
    """One answer, measured. `tpot_ms` is the client's clock, `server_tpot_ms` the gateway's."""

    question: str
    category: str
    setting: str
    repeat: int
    ids: tuple[int, ...]
    tpot_ms: float | None
    server_tpot_ms: float | None
    rounds: int
    tau: float | None
    draft_n: int
    draft_n_accepted: int


async def _measure(
    setup: Setup, settings: Sequence[Drafting], repeats: int, max_tokens: int
) -> list[Sample]:
    samples: list[Sample] = []
    async with running_gateway(setup) as gateway, connected(gateway.url) as client:
        # The first answers of a process are slower: pages are touched, bindings made.
        for setting in settings:
            await client.ask("Count to ten.", max_tokens=32, speculation=setting.wire)
        for done, question in enumerate(setup.questions, start=1):
            for repeat in range(repeats):
                order = settings if (repeat + done) % 2 else settings[::-1]
                for setting in order:
                    samples.append(await _sample(client, question, setting, repeat, max_tokens))
            progress(f"speed: {done} of {len(setup.questions)} prompts")
    return samples


async def _sample(
    client: Client, question: Question, setting: Drafting, repeat: int, max_tokens: int
) -> Sample:
    answer: WireAnswer = await client.ask(
        question.turns[0],
        max_tokens=max_tokens,
        speculation=setting.wire,
        provenance=True,
    )
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
    )


@dataclass(frozen=True, slots=True)
class Cell:
    """A category in one setting. Times are means over prompts of medians over repeats."""

    category: str
    setting: str
    prompts: int
    tokens: int
    tpot_ms: float | None
    server_tpot_ms: float | None
    ratio: float | None
    tau: float | None
    alpha: float | None
    rounds: int


def evaluate(
    samples: Sequence[Sample], settings: Sequence[Drafting], repeating: frozenset[str]
) -> Findings:
    """Figures and promises of `samples`, with the settings and limits of `run`."""
    categories = list(dict.fromkeys(sample.category for sample in samples))
    cells = [
        _cell(samples, category, setting.name) for category in categories for setting in settings
    ]
    different = _different(samples)
    short = sorted({sample.question for sample in samples if sample.tpot_ms is None})
    promises = [none_of("answers that differ between settings", len(different))]
    if any(setting.name == AUTO for setting in settings):
        promises += [_promise(cell, repeating) for cell in cells if cell.setting == AUTO]
    figures: dict[str, Any] = {
        "cells": [_record(cell) for cell in cells],
        "samples": [_record(sample) for sample in samples],
        "different": different,
        "too_short": short,
    }
    return Findings({}, figures, promises, _tables(cells, short))


def _record(item: Cell | Sample) -> dict[str, Any]:
    return {name: getattr(item, name) for name in type(item).__slots__}


def _cell(samples: Sequence[Sample], category: str, setting: str) -> Cell:
    members = [item for item in samples if (item.category, item.setting) == (category, setting)]
    timed = [item for item in members if item.tpot_ms is not None]
    plain = [item for item in samples if (item.category, item.setting) == (category, OFF)]
    tpot = _mean_of_medians((item.question, item.tpot_ms) for item in timed)
    plain_tpot = _mean_of_medians((item.question, item.tpot_ms) for item in plain)
    drafted = sum(item.draft_n for item in members)
    accepted = sum(item.draft_n_accepted for item in members)
    rounds = sum(item.rounds for item in members)
    return Cell(
        category=category,
        setting=setting,
        prompts=len({item.question for item in timed}),
        tokens=sum(len(item.ids) for item in timed),
        tpot_ms=tpot,
        server_tpot_ms=_mean_of_medians((item.question, item.server_tpot_ms) for item in timed),
        ratio=tpot / plain_tpot if tpot is not None and plain_tpot else None,
        # accepted tokens and one bonus token a round
        tau=(accepted + rounds) / rounds if rounds else None,
        alpha=accepted / drafted if drafted else None,
        rounds=rounds,
    )


def _mean_of_medians(values: Iterable[tuple[str, float | None]]) -> float | None:
    groups: dict[str, list[float]] = {}
    for question, value in values:
        if value is not None:
            groups.setdefault(question, []).append(value)
    return fmean(median(group) for group in groups.values()) if groups else None


def _different(samples: Sequence[Sample]) -> list[str]:
    """Prompts whose answers are not the same token for token in every setting and repeat."""
    seen: dict[str, set[tuple[int, ...]]] = {}
    for sample in samples:
        seen.setdefault(sample.question, set()).add(sample.ids)
    return [question for question, answers in seen.items() if len(answers) > 1]


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
            cell.setting,
            str(cell.prompts),
            str(cell.tokens),
            milliseconds(cell.tpot_ms),
            milliseconds(cell.server_tpot_ms),
            number(cell.ratio),
            number(cell.tau),
            number(cell.alpha),
            str(cell.rounds),
        )
        for cell in cells
    ]
    header = (
        "category",
        "length",
        "prompts",
        "tokens",
        "TPOT ms",
        "gateway's",
        "of off",
        "tau",
        "alpha",
        "rounds",
    )
    tables = [Table("Time per token, milliseconds", header, rows)]
    if short:
        title = f"Not timed, answers under {FEWEST_TOKENS} tokens"
        tables.insert(0, Table(title, ("prompt",), [(question,) for question in short]))
    return tables
