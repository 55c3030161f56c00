"""Two drafts as one tree."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.draft import Draft
from models.drafters.union import union


def paths(draft: Draft) -> dict[tuple[int, ...], tuple[float, str]]:
    """Every token's path from the root, with its confidence and who proposed it."""
    parents = draft.parents or tuple(range(-1, len(draft.tokens) - 1))
    found: list[tuple[int, ...]] = []
    for token, parent in zip(draft.tokens, parents, strict=True):
        found.append((*(found[parent] if parent >= 0 else ()), token))
    assert len(set(found)) == len(found), "siblings are different tokens"
    confidence = draft.confidence or (1.0,) * len(found)
    return {path: (confidence[index], draft.source_of(index)) for index, path in enumerate(found)}


FREE = Draft((1, 2, 3), confidence=(0.9, 0.8, 0.7), source="ngram")


def test_a_common_beginning_is_shared_and_counts_for_the_first() -> None:
    learned = Draft((1, 2, 9, 8), confidence=(0.6, 0.6, 0.6, 0.6), source="eagle3")
    both = union(FREE, learned, budget=16)
    assert {path: source for path, (_, source) in paths(both).items()} == {
        (1,): "ngram",
        (1, 2): "ngram",
        (1, 2, 3): "ngram",
        (1, 2, 9): "eagle3",
        (1, 2, 9, 8): "eagle3",
    }
    assert paths(both)[1, 2][0] == 0.8, "the surer one's"
    assert paths(both)[1, 2, 9][0] == pytest.approx(0.3 * 0.6), "of what the surer one leaves"
    assert both.tokens == (1, 2, 3, 9, 8), "the first branch lies right behind its parent"
    assert both.parents == (-1, 0, 1, 1, 3)


def test_the_surer_of_two_is_tried_first() -> None:
    learned = Draft((5,), confidence=(0.95,), source="eagle3")
    both = union(FREE, learned, budget=2)
    assert both.tokens == (5, 1)
    assert both.confidence == pytest.approx((0.95, 0.05 * 0.9))
    assert both.sources == ("eagle3", "ngram")


def test_of_one_text_it_makes_a_chain() -> None:
    longer = Draft((1, 2, 3, 4), confidence=(0.5,) * 4, source="eagle3")
    both = union(FREE, longer, budget=16)
    assert (both.tokens, both.parents) == ((1, 2, 3, 4), None)
    assert both.sources == ("ngram", "ngram", "ngram", "eagle3")


def test_trees_are_merged_branch_by_branch() -> None:
    first = Draft((1, 2, 3), (-1, 0, -1), confidence=(0.5, 0.9, 0.3), source="ngram")
    second = Draft((3, 4, 6), (-1, 0, -1), confidence=(0.4, 0.8, 0.2), source="mtp")
    found = paths(union(first, second, budget=16))
    assert {path: source for path, (_, source) in found.items()} == {
        (1,): "ngram",
        (1, 2): "ngram",
        (3,): "ngram",
        (3, 4): "mtp",
        (6,): "mtp",
    }


def test_drawn_drafts_are_not_merged() -> None:
    with pytest.raises(AssertionError):
        union(FREE, Draft((1,), proposals=(), source="eagle3"), budget=4)


@st.composite
def drafts(draw: st.DrawFn) -> Draft:
    size = draw(st.integers(1, 6))
    parents = tuple(draw(st.integers(-1, node - 1)) for node in range(size))
    tokens: list[int] = []
    left = dict.fromkeys(range(-1, size), 1.0)
    confidence = []
    for node, parent in enumerate(parents):
        taken = {tokens[other] for other in range(node) if parents[other] == parent}
        tokens.append(draw(st.integers(0, 8).filter(lambda token, taken=taken: token not in taken)))  # type: ignore[misc]
        confidence.append(left[parent] * draw(st.floats(0.0, 1.0)))
        left[parent] -= confidence[-1]
    return Draft(tuple(tokens), parents, None, tuple(confidence), draw(st.sampled_from("ab")))


@settings(max_examples=300, deadline=None)
@given(first=drafts(), second=drafts(), budget=st.integers(1, 12))
def test_it_holds_what_both_hold_up_to_the_budget(first: Draft, second: Draft, budget: int) -> None:
    whole = union(first, second, budget=99)
    assert paths(whole).keys() == paths(first).keys() | paths(second).keys()
    cut = union(first, second, budget)
    assert len(cut.tokens) == min(budget, len(whole.tokens))
    assert paths(cut).items() <= paths(whole).items()
    assert all(path[:-1] in paths(cut) or len(path) == 1 for path in paths(cut))


@settings(max_examples=200, deadline=None)
@given(first=drafts(), second=drafts())
def test_confidences_of_siblings_stay_probabilities(first: Draft, second: Draft) -> None:
    both = union(first, second, budget=99)
    parents = both.parents or tuple(range(-1, len(both.tokens) - 1))
    assert both.confidence is not None
    for parent in set(parents):
        siblings = [c for c, p in zip(both.confidence, parents, strict=True) if p == parent]
        assert sum(siblings) <= 1 + 1e-9


@settings(max_examples=200, deadline=None)
@given(first=drafts(), second=drafts(), budget=st.integers(1, 4))
def test_no_other_part_of_that_size_is_likelier(first: Draft, second: Draft, budget: int) -> None:
    whole, cut = paths(union(first, second, 99)), paths(union(first, second, budget))

    def expected(part: tuple[tuple[int, ...], ...]) -> float:
        total = 0.0
        for path in part:
            survival = 1.0
            for end in range(1, len(path) + 1):
                survival *= whole[path[:end]][0]
            total += survival
        return total

    sized = [
        part
        for part in combinations(whole, len(cut))
        if all(len(path) == 1 or path[:-1] in part for path in part)
    ]
    assert expected(tuple(cut)) == pytest.approx(max(map(expected, sized)))
