"""Lists of numbers in command lines."""

from __future__ import annotations

import pytest

from bench.ranges import at_least, decimals, naturals, one_of
from models.errors import UserError


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("3", (3,)), ("1..4", (1, 2, 3, 4)), ("8, 2,2", (8, 2)), ("1,3..5,4", (1, 3, 4, 5))],
)
def test_naturals_are_listed_once_and_in_order(text: str, numbers: tuple[int, ...]) -> None:
    assert naturals("lengths", text, 8) == numbers


@pytest.mark.parametrize("text", ["", "0", "9", "2..1", "1..", "..3", "1..9", "x", "1,,2", "1.5"])
def test_other_texts_are_refused_by_the_flags_name(text: str) -> None:
    with pytest.raises(UserError, match=r"--lengths .*takes 1 to 8, as in 1,2,4 or 1\.\.8"):
        naturals("lengths", text, 8)


def test_decimals_lie_within_their_bounds() -> None:
    assert decimals("alpha", "0.5, 1,0.5", 0, 1) == (0.5, 1.0)
    for text in ("", "x", "1.1", "-0.1", "nan", "0.5,"):
        with pytest.raises(UserError, match=r"--alpha .*takes numbers from 0 to 1"):
            decimals("alpha", text, 0, 1)


def test_least_values_and_names() -> None:
    at_least("rounds", 3, 3)
    for value in (2, float("nan")):
        with pytest.raises(UserError, match=r"--rounds .*must be at least 3"):
            at_least("rounds", value, 3)
    one_of("policies", ["off"], ("off", "fixed"))
    with pytest.raises(UserError, match="--policies nope: knows off, fixed"):
        one_of("policies", ["nope"], ("off", "fixed"))
