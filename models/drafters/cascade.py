"""Several drafters as one: proposals that are free first, a learned drafter's where they fall
short."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeGuard

from models.draft import EMPTY, Draft, Drafter, Later, LearningDrafter, at_once
from models.drafters.survival import Survival, expected_tokens
from models.drafters.union import union

Survivals = Callable[[str], Survival]
"""The estimates of a drafter by its name, for one request."""


def runs_graph(drafter: Drafter) -> TypeGuard[LearningDrafter]:
    """Whether its proposals take the run of a graph; others are as good as free."""
    return bool(getattr(drafter, "runs_graph", False))


class Cascade:
    """One request's drafters, as a `models.draft.Drafter` and in its two steps.

    `propose_free` asks the drafters that cost nothing. Whether a learned one is then worth its run
    is its caller's to decide (`propose` decides by expected tokens alone): `propose_learned` runs
    one, in whatever thread graphs run in, and `join` makes one draft of both. Learned drafters
    catch up by themselves with what was committed while they were not asked. `by_proposals` says
    that drafts are verified by what they were drawn from (`Draft.proposals`).
    """

    runs_graph = True

    def __init__(
        self,
        drafters: Sequence[Drafter],
        survivals: Survivals,
        *,
        branches: int = 1,
        by_proposals: bool = True,
    ) -> None:
        assert drafters, "a cascade has at least one drafter"
        self.name = "+".join(drafter.name for drafter in drafters)
        self._free_drafters = [drafter for drafter in drafters if not runs_graph(drafter)]
        self._learned_drafters = {
            drafter.name: drafter for drafter in drafters if runs_graph(drafter)
        }
        self._branches = branches
        self._by_proposals = by_proposals
        self.survivals = {name: survivals(name) for name in self._learned_drafters}
        self._free = EMPTY
        self._learned: Draft | None = None
        self._ran = ""

    @property
    def learned(self) -> tuple[str, ...]:
        """Names of the drafters that run a graph, the preferred one first."""
        return tuple(self._learned_drafters)

    @property
    def branching(self) -> bool:
        return self._branches > 1

    def reset(self, tokens: Sequence[int]) -> None:
        self._free, self._learned = EMPTY, None
        for drafter in (*self._free_drafters, *self._learned_drafters.values()):
            drafter.reset(tokens)

    def commit(self, tokens: Sequence[int], later: Later = at_once) -> None:
        if self._learned is not None and self._ran in self.survivals:
            later(self.survivals[self._ran].observe, self._learned, tokens)
        self._free, self._learned = EMPTY, None
        for free in self._free_drafters:
            free.commit(tokens)
        for learned in self._learned_drafters.values():
            learned.commit(tokens, later)

    def drop(self, name: str) -> None:
        """Go on without the learned drafter `name`."""
        del self._learned_drafters[name]

    def propose(self, budget: int) -> Draft:
        free = self.propose_free(budget)
        if budget > 0 and self.learned:
            best = max(self.learned, key=lambda name: self.survivals[name].expected(budget))
            if self.survivals[best].expected(budget) > expected_tokens(free):
                self.propose_learned(best, budget)
        return self.join(budget)

    def propose_free(self, budget: int) -> Draft:
        """The free drafters' drafts: of chains the one that is expected to yield most."""
        free = EMPTY
        for drafter in self._free_drafters:
            free = self._both(free, drafter.propose(budget), budget)
        self._free = free
        return free

    def propose_learned(self, name: str, budget: int) -> Draft:
        """Run the drafter `name`. Nothing of this object may be used meanwhile."""
        draft = self._learned_drafters[name].propose(budget)
        if draft.proposals is not None and not self._by_proposals:
            draft = draft._replace(proposals=None)
        self._ran, self._learned = name, draft
        return draft

    def join(self, budget: int) -> Draft:
        """Both steps' drafts as one: their union where drafts branch, else the one of the two that
        is expected to yield more.

        A learned draft that was drawn is taken as it is. It is verified by what it was drawn from,
        and whether it is may not depend on what was drawn.
        """
        free, learned = self._free, self._learned
        if learned is None or not learned.tokens:
            return free
        if learned.proposals is not None:
            return learned
        if learned.confidence is None and learned.parents is None:
            measured = [self.survivals[self._ran].accepted(n) for n in range(len(learned.tokens))]
            learned = learned._replace(confidence=tuple(measured))
        return self._both(free, learned, budget)

    def _both(self, first: Draft, second: Draft, budget: int) -> Draft:
        if not first.tokens or not second.tokens:
            return first if first.tokens else second
        if self.branching and first.proposals is None and second.proposals is None:
            return union(first, second, budget)
        return second if expected_tokens(second) > expected_tokens(first) else first
