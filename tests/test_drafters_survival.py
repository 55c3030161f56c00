"""How far drafts are accepted, learnt from outcomes."""

from __future__ import annotations

import pytest

from models.draft import Draft
from models.drafters.survival import (
    UNMEASURED,
    Published,
    Survival,
    expected_tokens,
    followed,
)

CHAIN = Draft((1, 2, 3))
TREE = Draft((1, 2, 3, 4, 5), (-1, 0, 0, 2, -1))


@pytest.mark.parametrize(
    ("draft", "said", "found"),
    [
        (CHAIN, (1, 2, 3, 9), [True, True, True]),
        (CHAIN, (1, 9), [True, False]),
        (CHAIN, (9,), [False]),
        (CHAIN, (1, 2), [True, True]),
        (Draft(), (1, 2), []),
        (TREE, (1, 3, 4, 8), [True, True, True]),
        (TREE, (1, 2, 7), [True, True]),
        (TREE, (5, 7), [True]),
        (TREE, (1, 8), [True, False]),
    ],
)
def test_outcomes_end_where_the_target_left_the_draft(
    draft: Draft, said: tuple[int, ...], found: list[bool]
) -> None:
    assert [outcome.right for outcome in followed(draft, said)] == found


def test_what_was_published_is_turned_into_shares_given_what_came_before() -> None:
    prior = Published((0.8, 0.4, 0.3))
    assert [prior.accepted(depth) for depth in range(5)] == pytest.approx(
        [0.8, 0.5, 0.75, 0.75, 0.75]
    )
    assert Published().accepted(3) == UNMEASURED
    assert Published((0.5, 0.0)).accepted(4) == 0.0


def test_the_prior_rules_until_there_are_outcomes() -> None:
    survival = Survival(Published((0.5, 0.25)), weight=4.0, memory=1.0)
    assert survival.shares(3) == pytest.approx((0.5, 0.25, 0.125))
    assert survival.expected(3) == pytest.approx(0.875)
    for _ in range(4):
        survival.observe(CHAIN, (1, 9))
    assert survival.accepted(0) == pytest.approx((4 + 4 * 0.5) / 8)
    assert survival.accepted(1) == pytest.approx((0 + 4 * 0.5) / 8)
    assert survival.accepted(2) == 0.5, "never reached"


def test_old_outcomes_fade() -> None:
    survival = Survival(Published((0.5,)), weight=1.0, memory=0.5)
    for _ in range(50):
        survival.observe(CHAIN, (9,))
    for _ in range(4):
        survival.observe(CHAIN, (1, 2, 3))
    assert survival.accepted(0) > 0.75


def test_what_one_request_teaches_is_the_next_ones_prior() -> None:
    engine = Survival(Published((0.5,)), weight=1.0, memory=1.0)
    first, second = (Survival(engine, weight=1.0, memory=1.0) for _ in range(2))
    for _ in range(9):
        first.observe(CHAIN, (1, 2, 3))
    assert engine.accepted(0) == second.accepted(0) == pytest.approx(9.5 / 10)
    second.observe(CHAIN, (9,))
    assert second.accepted(0) == pytest.approx(0.95 / 2)
    assert engine.accepted(0) == pytest.approx(9.5 / 11)


def test_a_prior_fades_like_outcomes() -> None:
    """Otherwise a drafter that fails one request would be run for what it does for others."""
    survival = Survival(Published((0.6,)), weight=4.0, memory=0.9)
    for _ in range(60):
        survival.observe(CHAIN, (9,))
    assert survival.accepted(0) < 0.01


def test_expected_tokens_sums_over_paths() -> None:
    assert expected_tokens(Draft((1, 2), confidence=(0.5, 0.5))) == 0.75
    tree = Draft((1, 2, 3), (-1, 0, -1), confidence=(0.5, 0.4, 0.25))
    assert expected_tokens(tree) == pytest.approx(0.5 + 0.2 + 0.25)
    assert expected_tokens(CHAIN) == 3.0
    assert expected_tokens(Draft()) == 0.0
