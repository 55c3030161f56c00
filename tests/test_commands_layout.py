"""Lines that fit: broken between values, never inside of one."""

from __future__ import annotations

import pytest

from gateway.commands.layout import PIPED_WIDTH, listed, sentence, terminal_width


def test_values_fill_lines_in_a_column_of_their_own() -> None:
    assert listed("  names  ", ["one", "two", "three", "four"], 20) == [
        "  names  one, two,",
        "         three, four",
    ]
    assert listed("  names  ", ["one"], 20) == ["  names  one"]
    assert listed("  names  ", [], 20) == ["  names"]


def test_a_value_with_spaces_stays_whole_where_a_line_holds_it() -> None:
    assert listed("- ", ["one two", "three four five"], 18) == ["- one two,", "  three four five"]


def test_a_value_without_room_is_broken_where_it_is_a_list_and_nowhere_else() -> None:
    value = "eagle3 (a-checkpoint @ 0123; reads features; 8 tokens)"
    assert listed("- ", ["ngram", value], 30) == [
        "- ngram,",
        "  eagle3 (a-checkpoint @ 0123;",
        "  reads features; 8 tokens)",
    ]
    path = "/" + "a-very-long-directory/" * 5
    assert listed("- ", [path, "b"], 30) == [f"- {path},", "  b"]


def test_sentences_are_broken_between_words() -> None:
    told = sentence("! ", "the file /a-b/c-d cannot be read-in.", 20)
    assert told == ["! the file /a-b/c-d", "  cannot be read-in."]
    assert sentence("", "a" * 30, 20) == ["a" * 30]


@pytest.mark.parametrize(("columns", "width"), [(None, PIPED_WIDTH), ("72", 72)])
def test_the_width(monkeypatch: pytest.MonkeyPatch, columns: str | None, width: int) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setattr("sys.__stdout__", None)  # no terminal, wherever the tests run
    assert terminal_width() == width
