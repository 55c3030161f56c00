"""Where n-grams have been."""

from __future__ import annotations

import pytest

from models.drafters.acceptance import Support
from models.drafters.positions import Positions

TEXT = [7, 1, 7, 2, 7, 2, 7]


def positions_of(text: list[int]) -> Positions:
    positions = Positions(width=1)
    positions.extend(text[:-1])
    return positions


def test_positions_are_those_of_the_tokens_behind() -> None:
    positions = positions_of(TEXT)
    assert positions.latest(7) == 5
    assert [positions.earlier(position) for position in (5, 3, 1)] == [3, 1, -1]
    assert positions.latest(2) == 6
    assert positions.latest(9) == -1


@pytest.mark.parametrize(("most", "found"), [(0, []), (2, [5, 3]), (3, [5, 3, 1]), (9, [5, 3, 1])])
def test_the_most_recent_come_first(most: int, found: list[int]) -> None:
    assert positions_of(TEXT).recent(7, most) == found
    assert positions_of(TEXT).recent(9, most) == []


def test_support_is_what_the_last_two_occurrences_say() -> None:
    positions = positions_of(TEXT)
    assert positions.support(7, 2, TEXT) is Support.AGREED
    assert positions.support(7, 1, TEXT) is Support.DISPUTED
    assert positions.support(1, 7, TEXT) is Support.ALONE
    assert positions.support(9, 7, TEXT) is Support.ALONE
    mixed = [7, 1, 7, 2, 7]
    assert positions_of(mixed).support(7, 2, mixed) is Support.DISPUTED


def test_pairs_follow_one_position_later() -> None:
    positions = Positions(width=2)
    positions.extend([(5, 6), (6, 5)])
    positions.extend([(5, 6)])
    assert positions.recent((5, 6), 5) == [4, 2]
    assert positions.latest((6, 5)) == 3
