"""Answers of the speed suite, and the figures of a category in one setting."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from bench.drafting import OFF, Setting, mark


@dataclass(frozen=True, slots=True)
class Sample:
    """One answer, measured. `tpot_ms` is the client's clock, `server_tpot_ms` the gateway's.

    `lossless` and `exact` are what the gateway said of it.
    """

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
    lossless: bool
    exact: bool


@dataclass(frozen=True, slots=True)
class Cell:
    """A category in one setting. Times are means over prompts of medians over repeats.

    `ratio` is over the prompts that are timed in this setting and in off. `identical` is the share
    of answers that are those of off, token for token (None for off itself). `mark` says what the
    answers are where they are not the target's: `lossy` or `meaningless`.
    """

    category: str
    setting: str
    length: str
    rule: str | None
    mark: str
    prompts: int
    tokens: int
    tpot_ms: float | None
    server_tpot_ms: float | None
    ratio: float | None
    tau: float | None
    alpha: float | None
    rounds: int
    identical: float | None


Answers = Mapping[tuple[str, int], tuple[int, ...]]
"""Ids by prompt and repeat."""


def cells_of(samples: Sequence[Sample], settings: Sequence[Setting]) -> list[Cell]:
    """Every category in every setting."""
    plain = {(item.question, item.repeat): item.ids for item in samples if item.setting == OFF}
    cells: list[Cell] = []
    for category in dict.fromkeys(sample.category for sample in samples):
        members = [item for item in samples if item.category == category]
        off = medians((item.question, item.tpot_ms) for item in members if item.setting == OFF)
        cells += [
            _cell([item for item in members if item.setting == setting.name], setting, off, plain)
            for setting in settings
        ]
    return cells


def record(item: Cell | Sample) -> dict[str, Any]:
    return {name: getattr(item, name) for name in type(item).__slots__}


def medians(values: Iterable[tuple[str, float | None]]) -> dict[str, float]:
    """Of each prompt's values; prompts without any are left out."""
    groups: dict[str, list[float]] = {}
    for question, value in values:
        if value is not None:
            groups.setdefault(question, []).append(value)
    return {question: median(group) for question, group in groups.items()}


def _cell(
    members: Sequence[Sample], setting: Setting, off: Mapping[str, float], plain: Answers
) -> Cell:
    timed = [item for item in members if item.tpot_ms is not None]
    tpot = medians((item.question, item.tpot_ms) for item in timed)
    server_tpot = medians((item.question, item.server_tpot_ms) for item in timed)
    drafted = sum(item.draft_n for item in members)
    accepted = sum(item.draft_n_accepted for item in members)
    rounds = sum(item.rounds for item in members)
    return Cell(
        category=members[0].category,
        setting=setting.name,
        length=setting.length,
        rule=setting.rule,
        mark=mark(setting.rule, all(item.lossless for item in members)),
        prompts=len(tpot),
        tokens=sum(len(item.ids) for item in timed),
        tpot_ms=_mean(tpot.values()),
        server_tpot_ms=_mean(server_tpot.values()),
        ratio=_ratio(tpot, off),
        tau=sum(item.tau * item.rounds for item in members if item.tau) / rounds
        if rounds
        else None,
        alpha=accepted / drafted if drafted else None,
        rounds=rounds,
        identical=None if setting.length == OFF else identical_share(members, plain),
    )


def identical_share(members: Sequence[Sample], plain: Answers) -> float:
    """Of `members` (at least one), those whose ids are the same as in `plain`."""
    return fmean(item.ids == plain[item.question, item.repeat] for item in members)


def _mean(values: Iterable[float]) -> float | None:
    numbers = list(values)
    return fmean(numbers) if numbers else None


def _ratio(tpot: Mapping[str, float], off: Mapping[str, float]) -> float | None:
    both = [question for question in tpot if question in off]
    if not both:
        return None
    return fmean(tpot[question] for question in both) / fmean(off[question] for question in both)
