"""Stop strings are found where the characters put them, however the text is cut into pieces."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.engine.stops import Stopped, StopScanner

WORDS = st.text(alphabet="abc", min_size=1, max_size=5)


def first_stop(text: str, stops: Sequence[str]) -> tuple[int, str] | None:
    """By looking at every beginning of the text: where the first stop ends, and which it is."""
    for end in range(1, len(text) + 1):
        complete = [stop for stop in stops if text[:end].endswith(stop)]
        if complete:
            return end, max(complete, key=len)
    return None


def longest_beginning(text: str, stops: Sequence[str]) -> int:
    lengths = [
        length
        for stop in stops
        for length in range(len(stop))
        if length == 0 or text.endswith(stop[:length])
    ]
    return max(lengths)


@given(
    pieces=st.lists(st.text(alphabet="abc", max_size=4), max_size=8),
    stops=st.lists(WORDS, min_size=1, max_size=4),
)
def test_pieces_do_not_matter(pieces: list[str], stops: list[str]) -> None:
    scanner = StopScanner(stops)
    text = ""
    for piece in pieces:
        found = scanner.push(piece)
        expected = first_stop(text + piece, stops)
        if found is None:
            assert expected is None
            text += piece
            assert scanner.held == longest_beginning(text, stops)
        else:
            assert (len(text) + found.end, found.stop) == expected
            return


@pytest.mark.parametrize(
    ("stops", "pieces", "stop", "end"),
    [
        (["ab"], ["xa", "bc"], "ab", 1),
        (["\n\n"], ["a\n", "\nb"], "\n\n", 1),
        (["aab"], ["aa", "a", "b"], "aab", 1),
        (["abc", "b"], ["abc"], "b", 2),
        (["bc", "abc"], ["abc"], "abc", 3),
        (["abcd", "bc"], ["abc"], "bc", 3),
        (["東京"], ["a東", "京都"], "東京", 1),
        (["👩‍🚀"], ["👩", "\u200d", "🚀!"], "👩‍🚀", 1),
        (["x", "x"], ["x"], "x", 1),
    ],
)
def test_the_stop_that_is_complete_first(
    stops: list[str], pieces: list[str], stop: str, end: int
) -> None:
    scanner = StopScanner(stops)
    *before, last = pieces
    assert [scanner.push(piece) for piece in before] == [None] * len(before)
    assert scanner.push(last) == Stopped(stop, end)


def test_what_turned_out_not_to_be_a_stop_is_not_held() -> None:
    scanner = StopScanner(["abcd", "bx"])
    held = []
    for character in "abcabc!":
        assert scanner.push(character) is None
        held.append(scanner.held)
    assert held == [1, 2, 3, 1, 2, 3, 0]


def test_a_shorter_beginning_is_still_held() -> None:
    scanner = StopScanner(["abcd", "bcx"])
    scanner.push("abc")
    assert scanner.held == 3
    assert scanner.push("x") == Stopped("bcx", 1)


def test_long_stops_cost_no_more_than_short_ones() -> None:
    """The worst case of comparing anew at every character: each is almost a stop."""
    scanner = StopScanner(["a" * 1000 + "b", *("a" * n + "c" for n in range(900, 915))])
    started = time.perf_counter()
    for _ in range(1000):
        assert scanner.push("a" * 100) is None
    assert time.perf_counter() - started < 3
    assert scanner.held == 1000
