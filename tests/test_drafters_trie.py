"""Tree drafts of the n-gram drafter: which tokens, in which shape, and what they teach."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.draft import Draft
from models.drafters.acceptance import CopyConfidence, Support
from models.drafters.ngram import NgramDrafter, NgramSettings
from models.drafters.trie import Occurrence, Trie

PHRASES = ((0, 1, 2), (0, 1, 3), (1, 2), (1,), (2,), (3, 0, 1), (3, 4))
# Hypothesis likes short lists; these are long enough to repeat themselves in several ways.
REPETITIVE = st.lists(st.sampled_from(PHRASES), min_size=6, max_size=25).map(
    lambda phrases: [token for phrase in phrases for token in phrase]
)
FEW_TOKENS = st.lists(st.integers(0, 3), max_size=9) | REPETITIVE
SAID = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=5), max_size=6)

Path = tuple[int, ...]


def drafter_of(
    tokens: Sequence[int], branches: int, limits: NgramSettings | None = None
) -> NgramDrafter:
    drafter = NgramDrafter(limits, branches)
    drafter.reset(tokens)
    return drafter


def parents_of(draft: Draft) -> tuple[int, ...]:
    return draft.parents or tuple(range(-1, len(draft.tokens) - 1))


def paths(draft: Draft) -> dict[Path, float]:
    """The tokens from the root to every node, and the node's path survival."""
    found: list[tuple[Path, float]] = []
    confidence = draft.confidence or ()
    for token, parent, certain in zip(draft.tokens, parents_of(draft), confidence, strict=True):
        path, survival = found[parent] if parent >= 0 else ((), 1.0)
        found.append(((*path, token), survival * certain))
    assert len(dict(found)) == len(found), "siblings differ"
    return dict(found)


def occurrences(tokens: Sequence[int], branches: int, budget: int) -> dict[Path, int]:
    """The definition, by brute force: the longest match, then the most recent, different ones.

    What follows each, and the length of its match.
    """
    end, longest = len(tokens), NgramSettings().longest
    matches = []
    for start in range(1, end):
        length = 0
        while length < min(start, longest) and tokens[start - length - 1] == tokens[-length - 1]:
            length += 1
        if length:
            matches.append((-length, -start))
    found: dict[Path, int] = {}
    for length, start in sorted(matches):
        copied = tuple(tokens[-start + at % (end + start)] for at in range(budget))
        if len(found) < branches:
            found.setdefault(copied, -length)
    return found


def support(tokens: Sequence[int], path: Path, token: int, matched: int) -> Support:
    width = 1 if matched == 1 else 2
    text = (*tokens, *path)
    followed = [
        tokens[at]
        for at in range(width, len(tokens))
        if tuple(tokens[at - width : at]) == text[len(text) - width :]
    ][-2:]
    if len(followed) < 2:
        return Support.ALONE
    return Support.AGREED if followed == [token, token] else Support.DISPUTED


def whole_tree(tokens: Sequence[int], branches: int, budget: int) -> dict[Path, float]:
    """Every path of at most `budget` tokens, with its survival, siblings in order."""
    copies = occurrences(tokens, branches, budget)
    tree: dict[Path, float] = {}

    def visit(path: Path, survival: float) -> None:
        depth = len(path)
        following: dict[int, int] = {}
        for copied, matched in copies.items():
            if copied[:depth] == path and depth < budget:
                following.setdefault(copied[depth], matched + depth)
        left = 1.0
        for rank, (token, matched) in enumerate(following.items()):
            kind = support(tokens, path, token, matched)
            share = left * CopyConfidence().estimate(matched, kind, rank)
            left -= share
            tree[*path, token] = survival * share
            visit((*path, token), survival * share)

    visit((), 1.0)
    return tree


@settings(max_examples=250, deadline=None)
@given(prompt=FEW_TOKENS, rounds=SAID, branches=st.integers(2, 8), budget=st.integers(0, 12))
def test_every_draft_is_a_tree(
    prompt: list[int], rounds: list[list[int]], branches: int, budget: int
) -> None:
    drafter = drafter_of(prompt, branches)
    for said in rounds:
        drafter.propose(budget)
        drafter.commit(said)
    draft = drafter.propose(budget)
    parents = parents_of(draft)
    assert len(parents) == len(draft.tokens) == len(draft.confidence or ()) <= budget
    assert all(-1 <= parent < node for node, parent in enumerate(parents))
    forked = any(parent != node - 1 for node, parent in enumerate(parents))
    assert (draft.parents is not None) == forked
    assert draft.proposals is None
    confidence = draft.confidence or ()
    assert all(0 < estimate < 1 for estimate in confidence)
    for node in {-1, *parents}:
        siblings = [confidence[i] for i, parent in enumerate(parents) if parent == node]
        assert math.fsum(siblings) <= 1
    paths(draft)


@settings(max_examples=250, deadline=None)
@given(tokens=FEW_TOKENS, branches=st.integers(2, 5), budget=st.integers(1, 8))
def test_the_budget_goes_to_the_likeliest_tokens(
    tokens: list[int], branches: int, budget: int
) -> None:
    """Against the whole tree of the definition."""
    expected = whole_tree(tokens, branches, budget)
    draft = drafter_of(tokens, branches, NgramSettings(candidates=1000)).propose(budget)
    proposed = paths(draft)
    assert proposed == pytest.approx({path: expected[path] for path in proposed})
    likeliest = sorted(expected.values(), reverse=True)[:budget]
    assert sorted(proposed.values(), reverse=True) == pytest.approx(likeliest)
    # Depth first, the best sibling first: as the definition's tree was walked.
    assert list(proposed) == [path for path in expected if path in proposed]


def test_a_hand_made_tree() -> None:
    """After 1 2 came 5 6 last, 3 4 before. The priors: 0.24 for 5, else 0.18 for 3; then the match
    is 3, 4, 5 tokens and undisputed: 0.62, 0.73, 0.83."""
    draft = drafter_of([1, 2, 3, 4, 1, 2, 5, 6, 1, 2], branches=2).propose(5)
    assert draft.tokens == (5, 6, 1, 2, 3)
    assert draft.parents == (-1, 0, 1, 2, -1)
    assert draft.confidence == pytest.approx((0.24, 0.62, 0.73, 0.83, 0.76 * 0.18))
    assert draft.source == "ngram"


def test_a_fork_further_on() -> None:
    """Both go on with 3, then differ: what they share is there once, and agreed."""
    draft = drafter_of([1, 2, 3, 4, 9, 1, 2, 3, 5, 8, 1, 2], branches=4).propose(7)
    assert draft.tokens == (3, 5, 8, 1, 2, 3, 4)
    assert draft.parents == (-1, 0, 1, 2, 3, 4, 0)
    assert draft.confidence == pytest.approx((0.72, 0.41, 0.73, 0.83, 0.83, 0.92, 0.59 * 0.25))


def test_a_match_of_one_token_is_an_alternative_to_longer_ones() -> None:
    tokens = [9, 2, 7, 1, 2, 5, 1, 2]
    assert {(5,), (7,)} <= paths(drafter_of(tokens, 2).propose(20)).keys()
    assert (7,) not in paths(drafter_of(tokens, 2, NgramSettings(shortest=2)).propose(20))


def test_the_same_continuation_again_is_no_branch() -> None:
    drafter = drafter_of([token for i in range(60) for token in (100 + i, 200 + i, 300 + i)], 2)
    for i in range(60):
        # Copies are wrong here, so that alternatives become likelier than longer copies.
        drafter.commit([100 + i, 200 + i])
        assert drafter.propose(1).tokens == (300 + i,)
        drafter.commit([400 + i])
    drafter.commit([1, 2, 7, 91, 1, 2, 5, 6, 92, 1, 2, 5, 6, 93, 1, 2])
    draft = drafter.propose(2)
    assert (draft.tokens, draft.parents) == ((5, 7), (-1, -1))


def test_no_more_branches_than_asked_for() -> None:
    tokens = [1, 2, 10, 1, 2, 11, 1, 2, 12, 1, 2, 13, 1, 2]
    for branches in (2, 3, 4):
        roots = [path for path in paths(drafter_of(tokens, branches).propose(30)) if len(path) == 1]
        assert roots == [(13,), (12,), (11,), (10,)][:branches]


@pytest.mark.parametrize("budget", [0, 1, 4, 9])
@pytest.mark.parametrize(
    "tokens", [[1, 2, 3, 4, 1, 2], [5, 1, 2, 3, 1, 2], [4, 4, 4], [7, 8, 7], [1, 2, 3], []]
)
def test_a_single_continuation_is_the_chain_of_one_branch(tokens: list[int], budget: int) -> None:
    assert drafter_of(tokens, 8).propose(budget) == drafter_of(tokens, 1).propose(budget)


def test_a_single_continuation_teaches_what_a_chain_does() -> None:
    one, eight = drafter_of([1, 2, 3, 4, 1, 2], 1), drafter_of([1, 2, 3, 4, 1, 2], 8)
    for said in ([3, 4, 1, 70, 1, 2], [3, 9, 71, 1]):
        drafts = [drafter.propose(2) for drafter in (one, eight)]
        assert drafts[0] == drafts[1]
        for drafter in (one, eight):
            drafter.commit(said)
    assert one.propose(1).tokens == (2,)
    assert one.propose(1) == eight.propose(1)


def test_only_recent_candidates_are_compared() -> None:
    """The bound on the cost of a proposal."""
    tokens = [1, 2, 50, 1, 2, 10, 1, 2, 11, 1, 2, 12, 1, 2]
    assert (50,) in paths(drafter_of(tokens, 8, NgramSettings(candidates=4)).propose(30))
    assert (50,) not in paths(drafter_of(tokens, 8, NgramSettings(candidates=3)).propose(30))


class Watched(CopyConfidence):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[int, int, bool]] = []

    def observe(self, matched: int, support: Support, accepted: bool, rank: int = 0) -> None:
        self.seen.append((rank, matched, accepted))


@pytest.mark.parametrize(
    ("said", "seen"),
    [
        ((5, 7), [(0, 2, True), (0, 3, False)]),
        ((3, 4, 9), [(0, 2, False), (1, 2, True), (0, 3, True), (0, 4, False)]),
        ((3, 4), [(0, 2, False), (1, 2, True), (0, 3, True)]),
        ((9, 5), [(0, 2, False), (1, 2, False)]),
        ((), []),
    ],
)
def test_a_tree_learns_along_the_path_of_the_target(
    said: Path, seen: list[tuple[int, int, bool]]
) -> None:
    """An alternative is judged only where those before it were wrong: (rank, match, right)."""
    confidence = Watched()
    trie = Trie([1, 2, 3, 4, 1, 2, 5, 6, 1, 2], lambda *_: Support.DISPUTED, confidence)
    trie.grow([Occurrence(6, 2), Occurrence(2, 2)], 8)
    trie.learn(said)
    assert confidence.seen == seen


def right_instead(said: Sequence[int]) -> float:
    """The worth of the second token behind 1 2 where the first is wrong, after `said` there."""
    drafter = drafter_of([1, 2, 3, 90, 1, 2, 5, 91, 1, 2], branches=2)
    for index, token in enumerate(said):
        drafter.propose(12)
        drafter.commit([token, 100 + index, 1, 2])
    draft = drafter.propose(12)
    confidence = draft.confidence or ()
    first, second = (confidence[i] for i, parent in enumerate(parents_of(draft)) if parent < 0)
    return second / (1 - first)


def test_alternatives_are_worth_what_they_were_in_this_request() -> None:
    unknown = right_instead([])
    assert unknown == pytest.approx(0.18)
    assert right_instead([3, 5] * 4) > 1.5 * unknown
    assert right_instead(range(50, 58)) < unknown / 1.1


def test_a_rejected_tree_leaves_no_trace() -> None:
    drafter = drafter_of([1, 2, 3, 4, 1, 2, 5, 6, 1, 2], branches=2)
    drafter.propose(5)
    drafter.commit([8])
    assert drafter.propose(5).tokens == ()
    drafter.commit([1])
    assert (
        paths(drafter.propose(2)).keys()
        == paths(drafter_of([1, 2, 3, 4, 1, 2, 5, 6, 1, 2, 8, 1], 2).propose(2)).keys()
    )
    drafter.reset([1, 2])
    assert drafter.propose(5).tokens == ()
