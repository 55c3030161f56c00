"""Stops act on what is said, and not within calls."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.calls.dialects import Manner
from gateway.calls.reader import AnswerReader
from gateway.calls.scope import CallScope
from gateway.engine.stops import ScopedScanner, StopScanner
from tests.calls_support import HERMES, LLAMA3, MISTRAL, NAMED

CALL = '{"name": "f", "arguments": {"a": "END"}}'
MARKED = f"<tool_call>\n{CALL}\n</tool_call>"
THINKING = Manner("hermes", told=True, thinks=True)


def scanner(manner: Manner, *stops: str, **options: Any) -> ScopedScanner:
    reader = AnswerReader(manner, **{"calls": True, **options})
    return ScopedScanner(stops, CallScope(reader))


def before_stop(scanner: StopScanner, pieces: list[str]) -> tuple[str, str | None]:
    """The text up to the stop, and the stop; all of it and None where there is none."""
    text = ""
    for piece in pieces:
        before, text = len(text), text + piece
        found = scanner.push(piece)
        assert found is not None or 0 <= scanner.held <= len(text)
        if found is not None:
            return text[: before + found.end - len(found.stop)], found.stop
    found = scanner.finish()
    return (text, None) if found is None else (text[: len(text) + found.end - len(found.stop)], "")


CASES = [
    (HERMES, "One. END Two.", ["END"], "One. "),
    (HERMES, MARKED, ["END", "\n", '"', "<tool_call>", "<"], MARKED),
    (HERMES, f"I say. {MARKED}\n{MARKED} END", ["END"], f"I say. {MARKED}\n{MARKED} "),
    (HERMES, f"{MARKED}\n\n{MARKED}", ["\n"], f"{MARKED}\n\n{MARKED}"),
    (HERMES, f"Well,\n{MARKED}", ["\n"], "Well,"),
    (HERMES, "a <tool_box> END", ["tool_b"], "a <"),
    (HERMES, '<tool_call>{"no": "END"} END', ["END"], '<tool_call>{"no": "'),
    (HERMES, "half <tool_", ["<too"], "half "),
    (HERMES, '<tool_call>{"name": "f", "arguments": {"a": "END', ["END"], None),
    (LLAMA3, CALL, ["END", "{"], CALL),
    (LLAMA3, '{"town": "END"}', ["END"], '{"town": "'),
    (MISTRAL, f"[TOOL_CALLS][{CALL}, {CALL}]", ["END", ","], None),
    (NAMED, 'Ok[TOOL_CALLS]f[ARGS]{"a": "END"}', ["END", "ARGS"], None),
    (THINKING, f"<think>x</think>{MARKED}", ["</think>"], "<think>x"),
    (THINKING, f"<think>x</think>{MARKED}", ["END"], None),
]


@pytest.mark.parametrize(("manner", "text", "stops", "expected"), CASES)
def test_where_stops_act_in_pieces_of_every_size(
    manner: Manner, text: str, stops: list[str], expected: str | None
) -> None:
    for size in (1, 2, 3, 7, len(text)):
        pieces = [text[start : start + size] for start in range(0, len(text), size)]
        kept, _ = before_stop(scanner(manner, *stops), pieces)
        assert kept == (text if expected is None else expected), size


def test_an_answer_of_calls_alone_has_no_place_for_stops() -> None:
    for text in (MARKED, "<tool_call>", "<tool_call>\n{"):
        assert before_stop(scanner(HERMES, "<", "\n", form="calls"), [text]) == (text, None)


def test_either_a_call_or_text() -> None:
    assert before_stop(scanner(HERMES, "END", form="either"), [MARKED])[1] is None
    text = '{"a": "<tool_call> END'
    assert before_stop(scanner(HERMES, "END", form="either"), [text])[0] == text[:-3]


def test_what_is_not_decided_is_held_back() -> None:
    made = scanner(HERMES, "END")
    assert made.push("Hello <tool") is None
    assert made.held == len("<tool")
    assert made.push("_call>") is None
    assert made.held == len("<tool_call>")
    assert made.push('{"name": "f", ') is None
    assert made.held == 0
    assert made.leaving


def test_what_is_skipped_is_read_and_not_looked_at() -> None:
    made = scanner(HERMES, "END")
    made.skip('END <tool_call>{"name": "f", "arguments": {')
    assert before_stop(made, ['"a": "END"}}</tool_call>END'])[0] == '"a": "END"}}</tool_call>'


@given(st.text("ab<E", max_size=30), st.integers(1, 5))
def test_without_calls_it_finds_what_the_plain_one_finds(text: str, size: int) -> None:
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    stops = ("ab", "<E", "Eab", "<")
    plain, _ = before_stop(StopScanner(stops), pieces)
    assert before_stop(scanner(HERMES, *stops), pieces)[0] == plain


ENDS = [
    (HERMES, f"So. {MARKED}", f"\n{MARKED}"),
    (HERMES, MARKED[: -len("\n</tool_call>")] + "\n", "<tool_call>"),
    (HERMES, MARKED[:-1], "x"),
    (LLAMA3, CALL, f"; {CALL}"),
    (MISTRAL, f"[TOOL_CALLS][{CALL}]", " END"),
    (MISTRAL, f"[TOOL_CALLS][{CALL}", f", {CALL}]"),
    (NAMED, 'Ok[TOOL_CALLS]f[ARGS]{"a": "END"}', '[TOOL_CALLS]f[ARGS]{"a": "END"}'),
]


@pytest.mark.parametrize("stops", [(), ("END", "<tool_call>")])
@pytest.mark.parametrize(("manner", "kept", "rest"), ENDS)
def test_an_answer_of_one_call_ends_behind_it_in_pieces_of_every_size(
    manner: Manner, kept: str, rest: str, stops: tuple[str, ...]
) -> None:
    kept_of = {f"{MARKED[: -len('</tool_call>')]}": MARKED[: -len("</tool_call>")] + "<"}
    kept, text = kept_of.get(kept, kept), kept + rest
    for size in (1, 2, 3, 7, len(text)):
        pieces = [text[start : start + size] for start in range(0, len(text), size)]
        assert before_stop(scanner(manner, *stops, single=True), pieces) == (kept, ""), size


def test_an_end_that_came_too_early_comes_as_soon_as_it_may() -> None:
    single = scanner(HERMES, single=True)
    single.skip(f"{MARKED} and ")
    found = single.push("more")
    assert found is not None
    assert (found.stop, found.end) == ("", 0)
