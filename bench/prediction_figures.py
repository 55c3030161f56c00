"""What the suite of predicted outputs found: ratios of medians, promises and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Literal

from bench.report import Findings, Promise, Table, milliseconds, none_of, number, unjudged

Kind = Literal["edit", "question"]
Way = Literal["off", "drafter", "given", "own", "altered", "wrong"]

WRONG_COSTS = 1.03
"""Time with a wrong prediction / with none, over all tasks."""

ALTERED_SAVES = 0.8
"""Time with the model's own answer, words altered, as the prediction / with none, of questions."""

LEAST_REPEATS = 3
"""With fewer the medians say too little to judge a promise about time by."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One answer: `ms` from its first token to its last, as its client saw it. Of `verified`
    predicted tokens `accepted` stand in the answer."""

    task: str
    kind: Kind
    way: Way
    repeat: int
    ids: tuple[int, ...]
    ms: float
    rounds: int
    verified: int
    accepted: int


def evaluate(samples: Sequence[Sample], described: Mapping[str, Any], title: str) -> Findings:
    """Figures and promises of `samples`."""
    questions = [sample for sample in samples if sample.kind == "question"]
    promises = [
        none_of("tasks whose answers differ with what was predicted", len(different(samples))),
        _timely("wrong prediction / none", samples, "wrong", WRONG_COSTS),
        _timely(
            "own answer, words altered / none (questions)", questions, "altered", ALTERED_SAVES
        ),
    ]
    figures = {"ratios": _ratios(samples), "samples": [asdict(sample) for sample in samples]}
    tables = [
        Table(f"Time of off's and of the drafter's. {title}", _HEADER, _summary(samples)),
        Table("By task: time of the drafter's", _TASK_HEADER, _by_task(samples)),
    ]
    return Findings(described, figures, promises, tables)


def different(samples: Sequence[Sample]) -> list[str]:
    """Tasks whose answers are not the same token for token."""
    seen: dict[str, set[tuple[int, ...]]] = {}
    for sample in samples:
        seen.setdefault(sample.task, set()).add(sample.ids)
    return [task for task, answers in seen.items() if len(answers) > 1]


def ratio(samples: Sequence[Sample], way: Way, to: Way) -> float | None:
    """Of the sums of the tasks' medians, over the tasks that were answered in both ways."""
    tasks = _tasks(samples, way) & _tasks(samples, to)
    if not tasks:
        return None
    sums = [sum(_median_ms(samples, task, each) for task in tasks) for each in (way, to)]
    return sums[0] / sums[1]


def _timely(name: str, samples: Sequence[Sample], way: Way, bound: float) -> Promise:
    promise = Promise(name, ratio(samples, way, "drafter"), "<=", bound, "x")
    repeats = len({sample.repeat for sample in samples})
    if repeats < LEAST_REPEATS:
        return unjudged(promise, f"{repeats} repeats; it takes {LEAST_REPEATS}")
    return promise


def _tasks(samples: Sequence[Sample], way: Way) -> set[str]:
    return {sample.task for sample in samples if sample.way == way}


def _median_ms(samples: Sequence[Sample], task: str, way: Way) -> float:
    return median(each.ms for each in samples if each.task == task and each.way == way)


def _groups(samples: Sequence[Sample]) -> dict[tuple[str, Way], list[Sample]]:
    """By kind and way, in the order in which they came."""
    kinds = sorted({sample.kind for sample in samples})
    ways: list[Way] = ["off", "drafter", "given", "own", "altered", "wrong"]
    grouped = {
        (kind, way): [each for each in samples if (each.kind, each.way) == (kind, way)]
        for kind in kinds
        for way in ways
    }
    return {key: found for key, found in grouped.items() if found}


def _ratios(samples: Sequence[Sample]) -> dict[str, dict[str, float | None]]:
    return {
        f"{kind}, {way}": {
            to: ratio([each for each in samples if each.kind == kind], way, to)
            for to in ("off", "drafter")
        }
        for kind, way in _groups(samples)
    }


_HEADER = (
    "",
    "tokens",
    "rounds",
    "of the prediction verified",
    "accepted",
    "ms",
    "of off",
    "of the drafter",
)


def _summary(samples: Sequence[Sample]) -> list[tuple[str, ...]]:
    ratios = _ratios(samples)
    rows = list[tuple[str, ...]]()
    for (kind, way), found in _groups(samples).items():
        compared = ratios[f"{kind}, {way}"]
        rows.append(
            (
                f"{kind}, {way}",
                number(sum(len(each.ids) for each in found) / len(found), 0),
                number(sum(each.rounds for each in found) / len(found), 0),
                number(sum(each.verified for each in found) / len(found), 0),
                number(sum(each.accepted for each in found) / len(found), 0),
                milliseconds(sum(each.ms for each in found) / len(found)),
                number(compared["off"]),
                number(compared["drafter"]),
            )
        )
    return rows


_PREDICTED: tuple[Way, ...] = ("given", "own", "altered", "wrong")
_TASK_HEADER = ("task", "tokens", "drafter, of off", *_PREDICTED)


def _by_task(samples: Sequence[Sample]) -> list[tuple[str, ...]]:
    rows = list[tuple[str, ...]]()
    for task in dict.fromkeys(sample.task for sample in samples):
        own = [sample for sample in samples if sample.task == task]
        rows.append(
            (
                task,
                number(len(own[0].ids), 0),
                number(ratio(own, "drafter", "off")),
                *(number(ratio(own, way, "drafter")) for way in _PREDICTED),
            )
        )
    return rows
