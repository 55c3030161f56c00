"""Greedy verification: the accepted prefix and the bonus token."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.verification import Outcome, accept_greedy

TOKENS = st.integers(0, 2)


@pytest.mark.parametrize(
    ("draft", "target", "accepted", "bonus"),
    [
        ((), (7,), 0, 7),
        ((1, 2, 3), (1, 2, 3, 4), 3, 4),
        ((1, 2, 3), (9, 2, 3, 4), 0, 9),
        ((1, 2, 3), (1, 9, 3, 4), 1, 9),
        # The last candidate rejected: the correction comes from its own row, not the one behind.
        ((1, 2, 3), (1, 2, 9, 4), 2, 9),
    ],
)
def test_the_prefix_that_the_target_says_is_accepted(
    draft: tuple[int, ...], target: tuple[int, ...], accepted: int, bonus: int
) -> None:
    outcome = accept_greedy(draft, target)
    assert outcome == Outcome(accepted, bonus)
    assert outcome.tokens(draft) == (*target[:accepted], bonus)


@given(st.lists(TOKENS, max_size=8), st.data())
def test_every_token_of_a_round_is_the_targets(draft: list[int], data: st.DataObject) -> None:
    target = data.draw(st.lists(TOKENS, min_size=len(draft) + 1, max_size=len(draft) + 1))
    outcome = accept_greedy(draft, target)
    tokens = outcome.tokens(draft)
    assert list(tokens) == target[: len(tokens)]
    assert len(tokens) == outcome.accepted + 1
    # Nothing acceptable was left behind.
    assert outcome.accepted == len(draft) or draft[outcome.accepted] != target[outcome.accepted]


def test_a_target_of_another_length_is_our_own_mistake() -> None:
    with pytest.raises(AssertionError, match="one target token per draft token"):
        accept_greedy((1, 2), (1, 2))
