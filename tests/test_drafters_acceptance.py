"""How likely copied tokens and their alternatives are."""

from __future__ import annotations

import pytest

from models.drafters.acceptance import CopyConfidence, Support

EVERY = [(matched, support) for matched in (1, 2, 3, 4, 6, 10, 14, 30) for support in Support]


def test_estimates_rise_with_the_match_and_with_agreement() -> None:
    confidence = CopyConfidence()
    for support in Support:
        rising = [confidence.estimate(matched, support) for matched in range(1, 25)]
        assert rising == sorted(rising)
    for matched in range(1, 25):
        by_support = [confidence.estimate(matched, support) for support in Support]
        assert by_support == sorted(set(by_support))


def test_the_tokens_of_a_draft_extend_the_match() -> None:
    supports = (Support.DISPUTED, Support.ALONE, Support.AGREED)
    assert CopyConfidence().estimates(1, supports) == pytest.approx((0.13, 0.53, 0.80))


@pytest.mark.parametrize(("matched", "support"), EVERY)
def test_an_alternative_is_worth_less_than_what_it_replaces(matched: int, support: Support) -> None:
    estimates = [CopyConfidence().estimate(matched, support, rank) for rank in range(4)]
    assert estimates[0] >= estimates[1] > estimates[2] == estimates[3] > 0


@pytest.mark.parametrize("accepted", [False, True])
@pytest.mark.parametrize("rank", [0, 1])
def test_outcomes_of_alternatives_and_of_preferred_tokens_are_apart(
    rank: int, accepted: bool
) -> None:
    confidence = CopyConfidence()
    before = [confidence.estimate(2, Support.ALONE, other) for other in range(3)]
    for _ in range(5):
        confidence.observe(2, Support.ALONE, accepted, rank)
    after = [confidence.estimate(2, Support.ALONE, other) for other in range(3)]
    moved = [new != old for old, new in zip(before, after, strict=True)]
    assert moved == ([True, False, False] if rank == 0 else [False, True, True])
    assert (after[rank] > before[rank]) == accepted


@pytest.mark.parametrize("rank", [0, 2])
def test_an_estimate_stays_within_bounds(rank: int) -> None:
    """Odds change by a factor of 20 at most, so that a request can always change its mind."""
    odds = []
    for accepted in (None, True, False):
        confidence = CopyConfidence()
        for _ in range(2000 if accepted is not None else 0):
            confidence.observe(1, Support.ALONE, accepted, rank)
        estimate = confidence.estimate(1, Support.ALONE, rank)
        odds.append(estimate / (1 - estimate))
    start, most, least = odds
    assert start < most <= 20.001 * start
    assert start > least >= start / 20.001
