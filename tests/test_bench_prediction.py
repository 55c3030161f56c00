"""The suite of predicted outputs: its tasks, what it alters, and what it promises."""

from __future__ import annotations

import dataclasses

import pytest

from bench.prediction import Task, altered, load_tasks, predictions_of
from bench.prediction_figures import Sample, different, evaluate, ratio

SAMPLE = Sample(
    task="a",
    kind="question",
    way="drafter",
    repeat=0,
    ids=(1, 2, 3),
    ms=100.0,
    rounds=2,
    verified=0,
    accepted=0,
)


def repeats(task: str = "a", **ms: float) -> list[Sample]:
    """Three of every way, the last one held up."""
    return [
        dataclasses.replace(SAMPLE, task=task, way=way, ms=time, repeat=repeat)  # type: ignore[arg-type]
        for way, around in ms.items()
        for repeat, time in enumerate((around, around, 9 * around))
    ]


GOOD = repeats(off=200.0, drafter=100.0, own=20.0, altered=50.0, wrong=101.0)


def statuses(samples: list[Sample]) -> list[str]:
    return [promise.status for promise in evaluate(samples, {}, "greedy").promises]


def test_tasks_are_edits_and_questions() -> None:
    tasks = load_tasks()
    assert len({task.name for task in tasks}) == len(tasks)
    assert {task.kind for task in tasks} == {"edit", "question"}
    for task in tasks:
        assert task.prompt.startswith(task.ask)
        assert task.prompt.endswith(task.text)


def test_promises() -> None:
    assert statuses(GOOD) == ["held"] * 3
    other = dataclasses.replace(GOOD[0], ids=(1, 2))
    assert statuses([*GOOD[1:], other])[0] == "BROKEN"
    slow = repeats(off=200.0, drafter=100.0, own=20.0, altered=50.0, wrong=104.0)
    assert statuses(slow)[1] == "BROKEN"
    useless = repeats(off=200.0, drafter=100.0, own=20.0, altered=81.0, wrong=100.0)
    assert statuses(useless)[2] == "BROKEN"


def test_too_few_repeats_judge_nothing_about_time() -> None:
    few = [sample for sample in GOOD if sample.repeat == 0]
    assert statuses(few) == ["held", "not measured", "not measured"]


def test_what_was_not_answered_is_missing() -> None:
    assert statuses([sample for sample in GOOD if sample.way != "wrong"])[1] == "missing"


def test_ratios_are_of_medians_over_common_tasks() -> None:
    samples = [*GOOD, *repeats("b", drafter=300.0, own=60.0)]
    assert ratio(samples, "own", "drafter") == pytest.approx(80 / 400)
    assert ratio(samples, "wrong", "drafter") == pytest.approx(1.01)
    assert ratio(samples, "given", "drafter") is None
    assert different(samples) == []


def test_tables_have_a_row_for_each_way_and_each_task() -> None:
    summary, by_task = evaluate([*GOOD, *repeats("b", drafter=10.0)], {}, "greedy").tables
    assert [row[0] for row in summary.rows] == [
        f"question, {way}" for way in ("off", "drafter", "own", "altered", "wrong")
    ]
    assert [row[0] for row in by_task.rows] == ["a", "b"]
    assert by_task.rows[0][2:] == ("0.50", "-", "0.20", "0.50", "1.01")


def test_words_are_replaced_left_out_and_said_twice() -> None:
    text = "one two three  four five six\nseven eight nine"
    assert altered(text, every=3) == "one two two  four five \nseven eight nine nine"
    assert altered("a a a", every=3) == "a a as"
    assert altered("too short") == "too short"


def test_only_edits_have_a_given_text() -> None:
    edit, question = Task("e", "Change it.", "old"), Task("q", "Why?")
    assert predictions_of(edit, "new", "other") == {
        "off": None,
        "drafter": None,
        "given": "old",
        "own": "new",
        "altered": "new",
        "wrong": "other",
    }
    assert "given" not in predictions_of(question, "new", "other")
