"""One answer's drafts: proposed by what is free and by what is worth its run, and offered."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from gateway.engine.costs.run_costs import RunCosts
from gateway.engine.costs.shape import Load
from gateway.engine.costs.streams import Stream, Streams
from gateway.engine.drafters import Drafters
from gateway.engine.policies.base import LONGEST_DRAFT, Candidate, Policy
from gateway.engine.policies.offers import NOTHING, Offer
from gateway.engine.solo import Rounds
from models.draft import EMPTY, Draft, Later, at_once
from models.drafters.cascade import Cascade
from models.drafters.grammar import GrammarDrafter, Grammatical

_MOST_HANDOVER_MS = 1.0


class Resources(Protocol):
    """What drafting needs of its engine."""

    @property
    def drafters(self) -> Drafters: ...

    @property
    def streams(self) -> Streams: ...

    @property
    def costs(self) -> RunCosts: ...


class Drafting:
    """Follows the committed tokens of one answer, which is `stream`.

    A learned drafter that fails is dropped: the answer goes on without it. Where a `guide` says
    what may come, drafts are made to fit. `spent_ms` is the time that drafting took, without
    waiting for others' runs; `run_ms` that of learned drafters' runs.
    """

    def __init__(
        self,
        cascade: Cascade,
        policy: Policy,
        resources: Resources,
        stream: Stream,
        guide: Grammatical | None = None,
    ) -> None:
        self._cascade = cascade
        self._policy = policy
        self._proposed = EMPTY
        self._resources = resources
        self._stream = stream
        self._grammar = None if guide is None else GrammarDrafter(guide)
        self._candidates = candidates(cascade, resources.drafters)
        self.spent_ms = 0.0
        self.run_ms = 0.0

    @property
    def learned(self) -> bool:
        """Whether a drafter is among its drafters whose graphs are run."""
        return bool(self._candidates)

    def reset(self, prompt: Sequence[int]) -> None:
        self._cascade.reset(prompt)

    def commit(self, tokens: Sequence[int], later: Later = at_once) -> None:
        """What is learnt of a drafter may be learnt `later`."""
        self._policy.observe(self._proposed, tokens)
        self._proposed = EMPTY
        self._cascade.commit(tokens, later)

    async def propose(self, room: int, trim: Callable[[Draft], Draft], rounds: Rounds) -> Offer:
        """An offer of at most `room` tokens, cut by the rule's own `trim`; `rounds` run graphs."""
        started, load = time.perf_counter(), self._load()
        budget = self._policy.budget(self._fitting(room, load))
        if budget == 0:
            return NOTHING
        draft = self._fitted(self._cascade.propose_free(budget), budget)
        plan = self._policy.plan(draft, self._candidates, load, budget)
        if plan is not None:
            self._spend_since(started)
            await self._run(plan.name, plan.budget, rounds)
            started, load = time.perf_counter(), self._load()
            draft = self._fitted(self._cascade.join(budget), budget)
        assert len(draft.tokens) <= budget, "a drafter keeps to its budget"
        self._proposed = draft = trim(draft)
        offer = self._policy.offer(draft, load) if draft.tokens else NOTHING
        self._spend_since(started)
        return offer

    def _fitting(self, room: int, load: Load) -> int:
        """No more than what a run takes without a jump in its cost."""
        most = self._resources.costs.limits.draft(load.rows)
        return room if most is None else min(room, most)

    def _fitted(self, draft: Draft, budget: int) -> Draft:
        return draft if self._grammar is None else self._grammar.fit(draft, budget)

    async def _run(self, name: str, budget: int, rounds: Rounds) -> None:
        """Have a learned drafter propose; nothing comes of one that fails."""
        propose = partial(self._cascade.propose_learned, name, budget)
        alone, started = len(self._resources.streams) == 1, time.perf_counter()
        try:
            drafted = await rounds.draft(self._stream.slot, propose)
        except Exception as error:
            if rounds.closed:
                raise
            self._resources.drafters.note_failure(name, error)
            self._cascade.drop(name)
            self._candidates = [each for each in self._candidates if each.name != name]
            return
        self.spent_ms += drafted.run_ms
        self.run_ms += drafted.run_ms
        if drafted.draft.tokens:
            taken = drafted.run_ms
            if alone:
                # Going to another thread and back is part of what this draft costs; a prompt that
                # is being read there is not.
                taken += min(_MOST_HANDOVER_MS, (time.perf_counter() - started) * 1e3 - taken)
            (candidate,) = [each for each in self._candidates if each.name == name]
            rounds.tell(candidate.costs.observe, budget, taken)

    def _load(self) -> Load:
        """What the draft's row joins by now."""
        return self._resources.streams.load(self._stream)

    def _spend_since(self, started: float) -> None:
        self.spent_ms += (time.perf_counter() - started) * 1e3


def candidates(cascade: Cascade, drafters: Drafters) -> list[Candidate]:
    """The learned drafters of `cascade`, with what is known of each."""
    found = []
    for name in cascade.learned:
        spec = drafters.spec(name)
        found.append(
            Candidate(
                name=name,
                longest=LONGEST_DRAFT if spec is None else spec.longest,
                costs=drafters.costs(name, branching=cascade.branching),
                survival=cascade.survivals[name],
                tree=cascade.branching and drafters.drafts_trees(name),
                probation=drafters.probation(name, branching=cascade.branching),
            )
        )
    return found
