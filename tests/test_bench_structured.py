"""The suite of answers by a schema: its tasks, what it promises, and a run on the tiny package."""

from __future__ import annotations

import dataclasses

import jsonschema
import pytest

from bench.structured import Sample, different, evaluate, is_valid, load_tasks

SAMPLE = Sample(
    task="a",
    way="schema",
    repeat=0,
    ids=(1, 2, 3),
    ms=80.0,
    rounds=2,
    forced=1,
    drafted=2,
    accepted=1,
    accept_ms=0.5,
    valid=True,
)
OFF = dataclasses.replace(SAMPLE, way="off", ms=160.0, forced=0, drafted=0, accepted=0, rounds=3)
FREE = dataclasses.replace(SAMPLE, way="free", ms=100.0, ids=(7, 8, 9), forced=0, valid=None)


def statuses(*samples: Sample) -> list[str]:
    return [promise.status for promise in evaluate(samples, {}, "greedy").promises]


def test_tasks_have_schemas_whose_answers_are_bounded() -> None:
    tasks = load_tasks()
    assert len({task.name for task in tasks}) == len(tasks) >= 6
    for task in tasks:
        jsonschema.Draft202012Validator.check_schema(task.schema)
        assert task.text.endswith("JSON.")


def test_promises() -> None:
    assert statuses(SAMPLE, OFF, FREE) == ["held"] * 3
    assert statuses(dataclasses.replace(SAMPLE, valid=False), OFF, FREE)[0] == "BROKEN"
    assert statuses(SAMPLE, dataclasses.replace(OFF, ids=(1, 2)), FREE)[1] == "BROKEN"
    assert statuses(dataclasses.replace(SAMPLE, ms=101.0), OFF, FREE)[2] == "BROKEN"


def test_free_text_may_differ() -> None:
    assert different([SAMPLE, OFF, FREE]) == []
    assert different([SAMPLE, dataclasses.replace(OFF, ids=(9,))]) == ["a"]


def test_the_table_has_a_row_for_each_task_and_for_all() -> None:
    other = [dataclasses.replace(each, task="b") for each in (SAMPLE, OFF, FREE)]
    (table,) = evaluate([SAMPLE, OFF, FREE, *other], {}, "greedy").tables
    assert [row[0] for row in table.rows] == ["a", "b", "all"]
    assert [row[6] for row in table.rows] == ["0.80"] * 3


@pytest.mark.parametrize(
    ("text", "valid"), [('{"a": 1}', True), ('{"a": "1"}', False), ('{"a": 1', False)]
)
def test_validity(text: str, valid: bool) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    assert is_valid(text, schema) is valid
