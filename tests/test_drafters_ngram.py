"""The n-gram drafter: what it proposes, what it learns, what it forgets."""

from __future__ import annotations

from typing import Literal

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from models.draft import Drafter
from models.drafters.ngram import NgramDrafter, NgramSettings

FEW_TOKENS = st.lists(st.integers(0, 4), max_size=60)


def drafter_of(tokens: list[int], settings: NgramSettings | None = None) -> NgramDrafter:
    drafter = NgramDrafter(settings)
    drafter.reset(tokens)
    return drafter


def proposal(tokens: list[int], budget: int = 4) -> tuple[int, ...]:
    return drafter_of(tokens).propose(budget).tokens


def matched_at(tokens: list[int], position: int, limits: NgramSettings) -> int:
    end, length = len(tokens), 0
    most = min(limits.longest, position)
    while length < most and tokens[position - length - 1] == tokens[end - length - 1]:
        length += 1
    return length


def expected_match(tokens: list[int], limits: NgramSettings) -> tuple[int, int]:
    """The definition, by brute force: 4^matched votes (of 8 tokens at most) for what followed, less
    for each more recent occurrence of the same two tokens or, where one alone matches, of that;
    then the longest match with what won, of equal ones the most recent."""
    found = [(place, matched_at(tokens, place, limits)) for place in range(1, len(tokens))]
    votes: dict[int, float] = {}
    for place, matched in found:
        if matched >= limits.shortest:
            least = min(matched, 2)
            rank = sum(later > place and length >= least for later, length in found)
            vote = 4.0 ** min(matched, 8) * 0.97**rank
            votes[tokens[place]] = votes.get(tokens[place], 0.0) + vote
    if not votes:
        return -1, 0
    # Rounding must not decide where the definition does not.
    most = max(votes.values())
    winners = {token for token, vote in votes.items() if vote > most * (1 - 1e-9)}
    assume(len(winners) == 1)
    matched, place = max((matched, place) for place, matched in found if tokens[place] in winners)
    return place, matched


def test_it_is_a_drafter() -> None:
    drafter: Drafter = NgramDrafter()
    assert drafter.name == "ngram"


def test_what_followed_the_same_tokens_is_proposed() -> None:
    assert proposal([1, 2, 3, 4, 5, 6, 9, 1, 2, 3], budget=3) == (4, 5, 6)


def test_the_longest_match_wins_over_a_more_recent_one() -> None:
    assert proposal([1, 2, 3, 50, 9, 2, 3, 60, 9, 1, 2, 3], budget=1) == (50,)


def test_of_equal_matches_the_most_recent_wins() -> None:
    assert proposal([7, 1, 2, 50, 8, 1, 2, 60, 9, 1, 2], budget=1) == (60,)


def test_what_followed_most_often_wins_where_little_matches() -> None:
    """A sentence's end is followed by what sentences begin with, not by what came last."""
    assert proposal([9, 1, 5, 8, 1, 5, 7, 1, 6, 2, 1], budget=1) == (5,)
    # What matches longer says more than several that match less.
    assert proposal([9, 1, 5, 8, 1, 5, 3, 2, 1, 6, 3, 2, 1], budget=1) == (6,)


@pytest.mark.parametrize("tokens", [[], [1], [1, 2], [1, 2, 3, 4, 5]])
def test_nothing_is_proposed_without_a_match(tokens: list[int]) -> None:
    drafter = drafter_of(tokens)
    draft = drafter.propose(8)
    assert (draft.tokens, draft.confidence, drafter.matched) == ((), None, 0)


def test_a_single_token_matches_unless_two_are_asked_for() -> None:
    assert proposal([1, 2, 3, 2], budget=2) == (3, 2)
    assert proposal([2, 5, 2, 6, 2], budget=1) == (6,)
    assert drafter_of([1, 2, 3, 2], NgramSettings(shortest=2)).propose(2).tokens == ()


@pytest.mark.parametrize("budget", [0, 1, 3, 7])
def test_the_budget_is_respected(budget: int) -> None:
    assert proposal([1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2], budget) == (3, 4, 5, 6, 7, 8, 9)[:budget]


def test_a_continuation_that_reaches_the_end_repeats_itself() -> None:
    assert proposal([5, 1, 2, 3, 1, 2], budget=7) == (3, 1, 2, 3, 1, 2, 3)
    assert proposal([4, 4, 4], budget=5) == (4, 4, 4, 4, 4)


def test_a_draft_is_a_chain_of_certain_tokens_with_a_confidence_each() -> None:
    draft = drafter_of([1, 2, 3, 4, 1, 2]).propose(3)
    assert (draft.parents, draft.proposals, draft.source) == (None, None, "ngram")
    assert draft.confidence is not None
    assert len(draft.confidence) == 3
    assert all(0 < estimate < 1 for estimate in draft.confidence)


@settings(max_examples=500, deadline=None)
@given(tokens=FEW_TOKENS)
@pytest.mark.parametrize("shortest", [1, 2])
def test_the_match_is_the_one_of_the_definition(tokens: list[int], shortest: Literal[1, 2]) -> None:
    limits = NgramSettings(shortest=shortest, longest=12, candidates=1000)
    drafter = drafter_of(tokens, limits)
    draft = drafter.propose(1)
    position, length = expected_match(tokens, limits)
    assert drafter.matched == length
    assert draft.tokens == ((tokens[position],) if length else ())


@settings(max_examples=300, deadline=None)
@given(prompt=FEW_TOKENS, rounds=st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=6)))
def test_incremental_equals_rebuilt(prompt: list[int], rounds: list[list[int]]) -> None:
    incremental = drafter_of(prompt)
    tokens = list(prompt)
    for committed in rounds:
        incremental.propose(5)
        incremental.commit(committed)
        tokens += committed
    rebuilt = drafter_of(tokens)
    assert incremental.propose(6).tokens == rebuilt.propose(6).tokens
    assert incremental.matched == rebuilt.matched


def test_a_rejected_draft_leaves_no_trace() -> None:
    drafter = drafter_of([1, 2, 3, 4, 5, 1, 2])
    assert drafter.propose(3).tokens == (3, 4, 5)
    drafter.commit([8])
    assert drafter.propose(3).tokens == ()
    drafter.commit([2])
    # Had the rejected draft stayed, the most recent 2 would be followed by 3.
    assert drafter.propose(1).tokens == (8,)


def test_reset_forgets_the_request_before() -> None:
    drafter = drafter_of([1, 2, 3, 4, 1, 2])
    fresh_confidence = drafter.propose(2).confidence
    for _ in range(20):
        drafter.propose(2)
        drafter.commit([9])
    drafter.reset([1, 2])
    assert drafter.propose(4).tokens == ()
    drafter.reset([1, 2, 3, 4, 1, 2])
    draft = drafter.propose(2)
    assert (draft.tokens, draft.confidence) == ((3, 4), fresh_confidence)


def test_two_requests_share_nothing() -> None:
    first, second = drafter_of([1, 2, 3, 4]), drafter_of([1, 2])
    first.commit([1, 2])
    assert first.propose(1).tokens == (3,)
    assert second.propose(1).tokens == ()


def test_only_recent_candidates_are_compared() -> None:
    """The bound on the cost of a proposal: an older, longer match is not looked for."""
    near = [1, 2, 8] * 5
    tokens = [5, 7, 1, 2, 50, *near, 5, 7, 1, 2]
    assert drafter_of(tokens, NgramSettings(candidates=6)).propose(1).tokens == (50,)
    assert drafter_of(tokens, NgramSettings(candidates=5)).propose(1).tokens == (8,)


def test_confidence_rises_with_the_length_of_the_match() -> None:
    draft = drafter_of([*range(10, 30), 9, *range(10, 13)]).propose(8)
    assert draft.confidence is not None
    assert list(draft.confidence) == sorted(draft.confidence)
    assert draft.confidence[-1] > draft.confidence[0]


def confidence_after(said: list[int]) -> float:
    """Of a match of two tokens, where the target answered `said` to such matches before."""
    drafter = drafter_of([1, 2, 3, 4, 1, 2])
    for index, token in enumerate(said):
        drafter.propose(1)
        assert drafter.matched == 2
        drafter.commit([token])
        drafter.commit([100 + index, 1, 2])
    estimates = drafter.propose(1).confidence
    assert estimates is not None
    return estimates[0]


def test_confidence_follows_what_the_target_says() -> None:
    unknown = confidence_after([])
    assert confidence_after([3] * 6) > unknown > confidence_after([50, 51, 52, 53, 54, 55])


def test_recent_outcomes_count_more() -> None:
    wrong = [50, 51, 52, 53, 54, 55]
    assert confidence_after([*wrong, *[55] * 6]) > confidence_after([*[3] * 6, *wrong])


def test_a_draft_that_was_not_verified_still_teaches() -> None:
    """Policy off or cut short: the target's own token tells whether the draft was right."""
    right, wrong = drafter_of([1, 2, 3, 4, 1, 2]), drafter_of([1, 2, 3, 4, 1, 2])
    for drafter, token in ((right, 3), (wrong, 9)):
        drafter.propose(3)
        drafter.commit([token])
        drafter.commit([1, 2])
    after_right, after_wrong = right.propose(1).confidence, wrong.propose(1).confidence
    assert after_right is not None
    assert after_wrong is not None
    assert after_right[0] > after_wrong[0]


def test_confidence_counts_what_else_followed() -> None:
    def first_confidence(tokens: list[int]) -> float:
        drafter = drafter_of(tokens)
        estimates = drafter.propose(1).confidence
        assert drafter.matched == 2
        assert estimates is not None
        return estimates[0]

    agreed = first_confidence([7, 1, 2, 3, 8, 1, 2, 3, 9, 1, 2])
    alone = first_confidence([8, 1, 2, 3, 9, 1, 2])
    disputed = first_confidence([7, 1, 2, 4, 8, 1, 2, 3, 9, 1, 2])
    assert agreed > alone > disputed


@settings(max_examples=300, deadline=None)
@given(
    prompt=FEW_TOKENS,
    rounds=st.lists(st.tuples(st.integers(0, 9), st.lists(st.integers(0, 4), max_size=6))),
)
def test_a_confidence_is_a_probability(
    prompt: list[int], rounds: list[tuple[int, list[int]]]
) -> None:
    drafter = drafter_of(prompt)
    for budget, committed in rounds:
        draft = drafter.propose(budget)
        assert len(draft.tokens) in (0, budget)
        assert len(draft.confidence or ()) == len(draft.tokens)
        assert all(0 < estimate < 1 for estimate in draft.confidence or ())
        drafter.commit(committed)
