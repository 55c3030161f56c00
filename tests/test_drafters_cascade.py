"""Several drafters as one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from models.draft import Draft, Later, Proposal, at_once
from models.drafters.cascade import Cascade
from models.drafters.survival import Published, Survival


class Fixed:
    """Proposes the same tokens every time, all with the same confidence."""

    def __init__(
        self,
        name: str,
        tokens: Sequence[int],
        confidence: float | None = 0.5,
        *,
        graph: bool = False,
        drawn: bool = False,
    ) -> None:
        self.name = name
        self.runs_graph = graph
        self._tokens = tuple(tokens)
        self._confidence = confidence
        self._drawn = drawn
        self.calls: list[object] = []

    def reset(self, tokens: Sequence[int]) -> None:
        self.calls.append(("reset", tuple(tokens)))

    def commit(self, tokens: Sequence[int], later: Later = at_once) -> None:
        self.calls.append(("commit", tuple(tokens)))

    def propose(self, budget: int) -> Draft:
        self.calls.append(budget)
        tokens = self._tokens[:budget]
        return Draft(
            tokens,
            proposals=tuple(map(certain, tokens)) if self._drawn else None,
            confidence=None if self._confidence is None else (self._confidence,) * len(tokens),
            source=self.name,
        )


def certain(token: int) -> Proposal:
    return Proposal(np.array([token]), np.ones(1))


def cascade(
    *drafters: Fixed,
    survival: Sequence[float] = (0.6, 0.36, 0.216),
    branches: int = 1,
    by_proposals: bool = True,
) -> Cascade:
    return Cascade(
        drafters,
        lambda name: Survival(Published(survival), 4.0, 1.0),
        branches=branches,
        by_proposals=by_proposals,
    )


def test_everybody_hears_everything() -> None:
    free, head = Fixed("ngram", ()), Fixed("eagle3", (), graph=True)
    both = cascade(free, head)
    both.reset((1, 2))
    both.commit((3,))
    assert free.calls == head.calls == [("reset", (1, 2)), ("commit", (3,))]
    assert (both.name, both.learned) == ("ngram+eagle3", ("eagle3",))


def test_what_is_free_comes_first_and_spares_the_run() -> None:
    free = Fixed("ngram", (1, 2, 3), confidence=0.9)
    head = Fixed("eagle3", (7, 8, 9), graph=True)
    draft = cascade(free, head).propose(3)
    assert (draft.tokens, draft.source) == ((1, 2, 3), "ngram")
    assert head.calls == []


def test_a_learned_drafter_runs_where_there_is_nothing_free() -> None:
    draft = cascade(Fixed("ngram", ()), Fixed("mtp", (7, 8), graph=True)).propose(4)
    assert (draft.tokens, draft.source) == ((7, 8), "mtp")


def test_of_two_chains_the_one_that_yields_more_is_taken() -> None:
    head = Fixed("eagle3", (7, 8, 9), confidence=0.8, graph=True)
    assert cascade(Fixed("ngram", (1, 2), 0.4), head).propose(3).source == "eagle3"
    doubtful = Fixed("eagle3", (7, 8, 9), confidence=0.1, graph=True)
    assert cascade(Fixed("ngram", (1, 2), 0.4), doubtful).propose(3).source == "ngram"


def test_a_learned_draft_without_confidence_is_worth_what_was_measured() -> None:
    head = Fixed("eagle3", (7, 8, 9), confidence=None, graph=True)
    assert cascade(Fixed("ngram", (1, 2), 0.5), head).propose(3).source == "eagle3"
    poor = cascade(Fixed("ngram", (1, 2), 0.5), head, survival=(0.3, 0.1))
    poor.propose_free(3)
    poor.propose_learned("eagle3", 3)
    assert poor.join(3).source == "ngram"


def test_where_drafts_branch_both_are_verified() -> None:
    free = Fixed("ngram", (1, 2), confidence=0.4)
    both = cascade(free, Fixed("eagle3", (1, 9), 0.6, graph=True), branches=4).propose(8)
    assert (both.tokens, both.parents) == ((1, 9, 2), (-1, 0, 0))
    assert both.sources == ("ngram", "eagle3", "ngram")


def test_outcomes_are_those_of_the_drafter_that_ran() -> None:
    both = cascade(Fixed("ngram", ()), Fixed("eagle3", (7, 8), graph=True))
    before = both.survivals["eagle3"].accepted(0)
    both.commit((7, 8, 1))
    assert both.survivals["eagle3"].accepted(0) == before, "nothing was drafted"
    both.propose(2)
    both.commit((9,))
    assert both.survivals["eagle3"].accepted(0) < before


def test_a_draft_that_lost_teaches_as_well() -> None:
    both = cascade(Fixed("ngram", (1,), 0.9), Fixed("eagle3", (7,), 0.5, graph=True))
    both.propose_free(1)
    both.propose_learned("eagle3", 1)
    assert both.join(1).source == "ngram"
    before = both.survivals["eagle3"].accepted(0)
    both.commit((7,))
    assert both.survivals["eagle3"].accepted(0) > before


@pytest.mark.parametrize("branches", [1, 4])
def test_what_was_drawn_stands_where_it_is_verified_by_what_it_was_drawn_from(
    branches: int,
) -> None:
    free, head = Fixed("ngram", (1, 2), 0.9), Fixed("mtp", (7,), 0.01, graph=True, drawn=True)
    both = cascade(free, head, branches=branches)
    both.propose_free(2)
    both.propose_learned("mtp", 2)
    draft = both.join(2)
    assert (draft.tokens, draft.source, draft.proposals is None) == ((7,), "mtp", False)
    coupled = cascade(free, head, branches=branches, by_proposals=False)
    coupled.propose_free(2)
    coupled.propose_learned("mtp", 2)
    assert coupled.join(2).tokens[0] == 1


def test_a_dropped_drafter_is_never_asked_again() -> None:
    head = Fixed("eagle3", (7,), graph=True)
    both = cascade(Fixed("ngram", ()), head)
    both.drop("eagle3")
    assert (both.propose(3).tokens, both.learned, head.calls) == ((), (), [])


def test_of_several_learned_ones_the_best_runs() -> None:
    one, two = Fixed("eagle3", (7,), graph=True), Fixed("mtp", (8,), graph=True)
    both = cascade(one, two)
    for _ in range(9):
        both.propose_learned("eagle3", 1)
        both.commit((9,))
    one.calls.clear()
    assert both.propose(1).source == "mtp"
    assert one.calls == []


@pytest.mark.parametrize(("branches", "tokens"), [(1, (5, 6)), (3, (5, 6, 1))])
def test_free_drafters_are_put_together_like_others(branches: int, tokens: tuple[int, ...]) -> None:
    own, store = Fixed("ngram", (1,), 0.3), Fixed("ngram-store", (5, 6), 0.6)
    draft = cascade(own, store, branches=branches).propose(4)
    assert draft.tokens == tokens
    assert [draft.source_of(index) for index in range(2)] == ["ngram-store"] * 2
