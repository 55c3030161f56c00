"""What answers say of a way of drafting: by task, and over all tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from bench.cells import medians
from bench.drafting import OFF

EVERY = "every task"


@dataclass(frozen=True, slots=True)
class Drafted:
    """One answer. Times in milliseconds, sums over its rounds; `tpot_ms` is the client's.

    `overhead_ms` is what of the gateway's decoding time was neither drafting nor verifying.
    `depths` counts rounds that verified, and that accepted, a token at each depth.
    """

    question: str
    task: str
    way: str
    temperature: float
    repeat: int
    ids: tuple[int, ...]
    tpot_ms: float | None
    rounds: int
    advanced: float
    draft_n: int
    accepted: int
    depths: tuple[tuple[int, int], ...]
    draft_ms: float
    verify_ms: float
    overhead_ms: float | None


@dataclass(frozen=True, slots=True)
class DrafterCell:
    """A task in one way at one temperature; times are means per round.

    Over every task `tau`, `alpha`, `survival` and the times are means of the tasks' own.
    `ratio` is time per token over that of off; `identical` the share of answers that are off's.
    """

    task: str
    way: str
    temperature: float
    prompts: int
    rounds: int
    tau: float | None
    alpha: float | None
    survival: tuple[float, ...]
    draft_ms: float | None
    verify_ms: float | None
    overhead_ms: float | None
    tpot_ms: float | None
    ratio: float | None
    identical: float | None


def drafter_cells(answers: Sequence[Drafted]) -> list[DrafterCell]:
    """For each temperature and way: every task, then all of them together."""
    cells: list[DrafterCell] = []
    tasks = list(dict.fromkeys(answer.task for answer in answers))
    ways = list(dict.fromkeys(answer.way for answer in answers))
    for temperature in dict.fromkeys(answer.temperature for answer in answers):
        drawn = [answer for answer in answers if answer.temperature == temperature]
        for way in ways:
            own = [_cell([a for a in drawn if a.task == task], way) for task in tasks]
            cells += own
            if len(own) > 1:
                cells.append(_together(own))
    return cells


def _cell(members: Sequence[Drafted], way: str) -> DrafterCell:
    off = medians((a.question, a.tpot_ms) for a in members if a.way == OFF)
    plain = {(a.question, a.repeat): a.ids for a in members if a.way == OFF}
    own = [answer for answer in members if answer.way == way]
    tpot = medians((answer.question, answer.tpot_ms) for answer in own)
    both = [question for question in tpot if question in off]
    rounds = sum(answer.rounds for answer in own)
    drafted = sum(answer.draft_n for answer in own)
    measured = [a.overhead_ms for a in own if a.overhead_ms is not None]
    return DrafterCell(
        task=own[0].task,
        way=way,
        temperature=own[0].temperature,
        prompts=len({answer.question for answer in own}),
        rounds=rounds,
        tau=sum(answer.advanced for answer in own) / rounds if rounds else None,
        alpha=sum(answer.accepted for answer in own) / drafted if drafted else None,
        survival=_survival(own),
        draft_ms=sum(answer.draft_ms for answer in own) / rounds if rounds else None,
        verify_ms=sum(answer.verify_ms for answer in own) / rounds if rounds else None,
        overhead_ms=sum(measured) / rounds if measured else None,
        tpot_ms=fmean(tpot.values()) if tpot else None,
        ratio=fmean(tpot[q] for q in both) / fmean(off[q] for q in both) if both else None,
        identical=None
        if way == OFF
        else fmean(answer.ids == plain[answer.question, answer.repeat] for answer in own),
    )


def _survival(answers: Sequence[Drafted]) -> tuple[float, ...]:
    """Of the rounds that verified a token at a depth, those that accepted one."""
    counts: list[list[int]] = []
    for answer in answers:
        for depth, (verified, accepted) in enumerate(answer.depths):
            if depth == len(counts):
                counts.append([0, 0])
            counts[depth][0] += verified
            counts[depth][1] += accepted
    return tuple(accepted / verified for verified, accepted in counts)


def _together(cells: Sequence[DrafterCell]) -> DrafterCell:
    depths = max(len(cell.survival) for cell in cells)
    at_depth = [[c.survival[d] for c in cells if d < len(c.survival)] for d in range(depths)]
    return DrafterCell(
        task=EVERY,
        way=cells[0].way,
        temperature=cells[0].temperature,
        prompts=sum(cell.prompts for cell in cells),
        rounds=sum(cell.rounds for cell in cells),
        tau=_mean([cell.tau for cell in cells]),
        alpha=_mean([cell.alpha for cell in cells]),
        survival=tuple(fmean(values) for values in at_depth),
        draft_ms=_mean([cell.draft_ms for cell in cells]),
        verify_ms=_mean([cell.verify_ms for cell in cells]),
        overhead_ms=_mean([cell.overhead_ms for cell in cells]),
        tpot_ms=_mean([cell.tpot_ms for cell in cells]),
        ratio=_mean([cell.ratio for cell in cells]),
        identical=_mean([cell.identical for cell in cells]),
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
