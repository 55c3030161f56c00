"""Figures of a way of drafting, by task and over all of them."""

from __future__ import annotations

import pytest

from bench.drafter_cells import EVERY, Drafted, DrafterCell, drafter_cells


def answer(way: str, question: str, task: str, tpot_ms: float | None, **changed: object) -> Drafted:
    fields: dict[str, object] = {
        "question": question,
        "task": task,
        "way": way,
        "temperature": 0.0,
        "repeat": 0,
        "ids": (1, 2, 3),
        "tpot_ms": tpot_ms,
        "rounds": 10,
        "advanced": 20.0,
        "draft_n": 30,
        "accepted": 10,
        "depths": ((10, 6), (10, 3), (10, 1)),
        "draft_ms": 40.0,
        "verify_ms": 200.0,
        "overhead_ms": 10.0,
    }
    return Drafted(**{**fields, **changed})  # type: ignore[arg-type]


def cell(cells: list[DrafterCell], way: str, task: str) -> DrafterCell:
    (found,) = [item for item in cells if (item.way, item.task) == (way, task)]
    return found


def test_a_task_sums_over_its_answers() -> None:
    cells = drafter_cells(
        [
            answer("off", "1", "qa", 20.0),
            answer("off", "2", "qa", 40.0),
            answer("head:3", "1", "qa", 10.0),
            answer("head:3", "2", "qa", 20.0, rounds=30, advanced=30.0, depths=((30, 0),)),
        ]
    )
    found = cell(cells, "head:3", "qa")
    assert found.tau == 50 / 40
    assert found.alpha == 20 / 60
    assert found.survival == (6 / 40, 3 / 10, 1 / 10)
    assert (found.draft_ms, found.verify_ms, found.overhead_ms) == (2.0, 10.0, 0.5)
    assert (found.tpot_ms, found.ratio, found.identical) == (15.0, 0.5, 1.0)
    assert all(item.task != EVERY for item in cells)


def test_every_task_counts_alike() -> None:
    cells = drafter_cells(
        [
            answer("off", "1", "qa", 20.0),
            answer("off", "2", "chat", 20.0),
            answer("off", "3", "chat", 20.0),
            answer("head:3", "1", "qa", 10.0),
            answer("head:3", "2", "chat", 20.0, advanced=10.0, ids=(1, 2, 4)),
            answer("head:3", "3", "chat", 20.0, advanced=10.0),
        ]
    )
    every = cell(cells, "head:3", EVERY)
    assert every.tau == (2.0 + 1.0) / 2
    assert every.ratio == (0.5 + 1.0) / 2
    assert every.identical == (1.0 + 0.5) / 2
    assert every.prompts == 3


def test_temperatures_are_kept_apart_and_short_answers_untimed() -> None:
    cells = drafter_cells(
        [
            answer("off", "1", "qa", 20.0),
            answer("off", "1", "qa", 30.0, temperature=0.8),
            answer("head:3", "1", "qa", 10.0),
            answer("head:3", "1", "qa", None, temperature=0.8, overhead_ms=None),
        ]
    )
    ratios = {(item.way, item.temperature): item.ratio for item in cells}
    assert ratios["head:3", 0.0] == 0.5
    assert ratios["head:3", 0.8] is None
    timeless = next(item for item in cells if item.way == "head:3" and item.temperature == 0.8)
    assert (timeless.tpot_ms, timeless.overhead_ms, timeless.tau) == (None, None, 2.0)


def test_off_is_not_compared_with_itself() -> None:
    (plain,) = drafter_cells([answer("off", "1", "qa", 20.0, draft_n=0, accepted=0, depths=())])
    assert plain.identical is None
    assert plain.ratio == pytest.approx(1.0)
    assert (plain.alpha, plain.survival) == (None, ())
