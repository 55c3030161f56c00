"""Prompt files: what is read, what is refused and where, and which are taken."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from bench import prompts
from bench.prompts import Question, by_task, load, spread
from models.errors import UserError


def write(path: Path, *lines: str) -> Path:
    file = path / "some.jsonl"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


def test_spec_bench_lines_become_questions(tmp_path: Path) -> None:
    line = json.dumps({"question_id": 81, "category": "writing", "turns": ["a", "b"], "more": 1})
    assert load(write(tmp_path, line)) == [Question("81", "writing", ("a", "b"))]


def test_only_turns_are_needed_and_empty_lines_are_nothing(tmp_path: Path) -> None:
    file = write(tmp_path, '{"turns": ["a"]}', "", '{"turns": ["b"]}')
    assert load(file) == [Question("1", "all", ("a",)), Question("3", "all", ("b",))]


def test_a_file_from_another_editor_is_read(tmp_path: Path) -> None:
    file = tmp_path / "some.jsonl"
    file.write_bytes(b'\xef\xbb\xbf{"turns": ["a"]}\r\n \r\n{"turns": ["b"]}\r\n')
    assert load(file) == [Question("1", "all", ("a",)), Question("3", "all", ("b",))]


def test_a_separator_inside_a_text_does_not_end_its_line(tmp_path: Path) -> None:
    file = write(tmp_path, json.dumps({"turns": ["a\u2028b\x85c"]}, ensure_ascii=False))
    assert load(file)[0].turns == ("a\u2028b\x85c",)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "is not valid JSON"),
        ("[" * 100_000, "is not valid JSON"),
        ('{"turns": ["\\ud800"]}', "is not valid JSON"),
        ("[]", "is not a JSON object"),
        ('{"question_id": 1}', "turns must be a list"),
        ('{"turns": []}', "turns must be a list"),
        ('{"turns": "a"}', "turns must be a list"),
        ('{"turns": ["a", 2]}', "every turn must be a text"),
        ('{"turns": ["a", " "]}', "every turn must be a text"),
        ('{"turns": ["a"], "category": 3}', "category must be a text"),
        ('{"turns": ["a"], "question_id": [3]}', "question_id must be"),
    ],
)
def test_a_bad_line_is_named_with_its_file(tmp_path: Path, line: str, problem: str) -> None:
    file = write(tmp_path, '{"turns": ["a"]}', line)
    with pytest.raises(UserError) as refused:
        load(file)
    assert f"{file}:2: " in refused.value.message
    assert problem in refused.value.message
    assert refused.value.code == "prompts_invalid"


def test_a_file_without_prompts_and_a_missing_file_are_named(tmp_path: Path) -> None:
    for file in (write(tmp_path, ""), tmp_path / "absent.jsonl"):
        with pytest.raises(UserError, match=file.name):
            load(file)


def test_an_id_that_occurs_twice_is_refused(tmp_path: Path) -> None:
    line = '{"question_id": 7, "turns": ["a"]}'
    with pytest.raises(UserError, match="question_id 7 occurs twice"):
        load(write(tmp_path, line, line))


def questions(**counts: int) -> list[Question]:
    return [
        Question(f"{category}{index}", category, ("x",))
        for category, count in counts.items()
        for index in range(count)
    ]


def test_a_limit_is_shared_evenly_between_categories() -> None:
    chosen = spread(questions(a=40, b=5, c=2), 12)
    assert Counter(question.category for question in chosen) == {"a": 5, "b": 5, "c": 2}


def test_within_a_category_prompts_lie_at_even_distances_in_file_order() -> None:
    chosen = spread(questions(a=40, b=40), 8)
    assert [question.id for question in chosen] == [
        *("a0", "a10", "a20", "a30"),
        *("b0", "b10", "b20", "b30"),
    ]


def test_a_limit_can_be_shared_evenly_between_tasks() -> None:
    chosen = spread(questions(writing=10, coding=10, rag=10), 6, by_task)
    assert Counter(question.task for question in chosen) == {"chat": 3, "rag": 3}


def test_a_limit_beyond_the_number_of_prompts_takes_all_of_them() -> None:
    everything = questions(a=3, b=1)
    assert spread(everything, 100) == everything


def test_the_built_in_prompts_cover_the_repeating_categories() -> None:
    built_in = prompts.builtin()
    assert len(built_in) >= 8
    assert {question.category for question in built_in} == prompts.REPEATING_CATEGORIES
    assert all(60 <= len(question.turns[0].split()) <= 300 for question in built_in)
