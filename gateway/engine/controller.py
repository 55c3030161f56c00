"""Whether a round runs a learned drafter, how far, and how much of a draft it verifies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from gateway.engine.costs.draft_costs import DraftCosts
from gateway.engine.costs.run_costs import RunCosts
from gateway.engine.costs.shape import Load
from gateway.engine.requests import Speculation
from models.draft import Draft
from models.drafters.survival import Survival, expected_tokens

LONGEST_DRAFT = 16
"""Draft tokens per round at most, where a request does not say."""

_LEAST_GAIN = 1.03
"""A draft that makes the run dearer must promise this much, so that noise never decides for it."""

_PROBING = 0.01
"""Share of the time that may be spent on finding out whether a drafter pays by now."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A learned drafter: how far it drafts at most, what that costs, and what is accepted of it.

    With `tree` a draft of any number of tokens reaches as deep as it can.
    """

    name: str
    longest: int
    costs: DraftCosts
    survival: Survival
    tree: bool = False

    def expected(self, budget: int) -> float:
        """Accepted tokens to expect of a draft of `budget` tokens."""
        return self.survival.expected(min(budget, self.longest))


class Plan(NamedTuple):
    """The learned drafter to run and the tokens to ask of it."""

    name: str
    budget: int


class Controller:
    """Chooses what to draft and to verify for one request.

    `auto` maximises expected tokens per millisecond: E[tau] / (T_draft + T_verify + T_host), plain
    decoding among the candidates. `plan` decides from measured survival before a learned drafter
    is run, `select` from the drafter's confidence in each token once there is a draft. Where no
    learned drafter pays, one is tried now and then, within a share of the time, so that it comes
    back when it does. `fixed` always asks for the same number of tokens, `off` for none.
    """

    def __init__(self, speculation: Speculation, costs: RunCosts) -> None:
        self._policy = speculation.policy if speculation.drafter != "off" else "off"
        self._costs = costs
        self._limit = LONGEST_DRAFT if speculation.length is None else speculation.length
        self._credit = 0.0

    @property
    def policy(self) -> str:
        return self._policy

    def budget(self, room: int) -> int:
        """Draft tokens to ask the drafter for when `room` fit into the answer and the slot."""
        return 0 if self._policy == "off" else max(0, min(self._limit, room))

    def plan(
        self, free: Draft, learned: Sequence[Candidate], load: Load, budget: int
    ) -> Plan | None:
        """The learned drafter that is worth its run where `free` is proposed anyway, if any is.

        `load` is what shares the run: its streams wait for this draft as this request does for
        theirs.
        """
        if budget <= 0 or not learned:
            return None
        if self._policy != "auto":
            best = max(learned, key=lambda each: each.expected(budget))
            worth = best.expected(budget) > expected_tokens(free) or not free.tokens
            return Plan(best.name, _most(best, budget)) if worth else None
        gain, plan = self._best_plan(learned, load, budget)
        if gain >= _LEAST_GAIN and gain > self._gain_of(free, load):
            return plan
        return self._probe(plan, learned, load)

    def select(self, draft: Draft, load: Load) -> Draft:
        """The part of `draft` to verify, every token with those it follows, their order kept.

        `load` is what shares the run. A draft without confidence is believed. Where
        tokens were drawn (`draft.proposals`) and rule `classic` verifies them, the choice is only
        lossless if `confidence[i]` does not depend on which token was drawn at i: whether i is
        verified is then decided by what comes before it alone.
        """
        if self._policy != "auto":
            return draft
        return _cut(draft, self._best_part(draft, load)[0].nodes)

    def _best_plan(
        self, learned: Sequence[Candidate], load: Load, budget: int
    ) -> tuple[float, Plan]:
        """The plan of most expected tokens per millisecond, against plain decoding."""
        host, surcharge = self._costs.overhead.ms, self._costs.surcharge
        runs = self._costs.by_own_tokens(load, 1 + budget)
        plain = runs[1] + host
        best, plan = -1.0, Plan(learned[0].name, 1)
        for each in learned:
            for length, expected in _choices(each, budget):
                verify = runs[1 + length] * (surcharge if each.tree else 1.0)
                cost = verify + host + load.rows * each.costs.predict(length)
                gain = (1.0 + expected) * plain / cost
                if gain > best:
                    best, plan = gain, Plan(each.name, length)
        return best, plan

    def _probe(self, plan: Plan, learned: Sequence[Candidate], load: Load) -> Plan | None:
        """Once in a while the plan that came nearest to paying."""
        plain = self._costs.predict(load.run(1))
        (chosen,) = (each for each in learned if each.name == plan.name)
        price = load.rows * chosen.costs.predict(plan.budget)
        wider = self._costs.predict(load.run(1 + plan.budget, chosen.tree))
        price += max(0.0, wider - plain)
        self._credit = min(self._credit + _PROBING * plain, price)
        if self._credit < price:
            return None
        self._credit = 0.0
        return plan

    def _gain_of(self, draft: Draft, load: Load) -> float:
        return self._best_part(draft, load)[1]

    def _best_part(self, draft: Draft, load: Load) -> tuple[_Part, float]:
        """What to verify of `draft`, and how much faster than plain decoding that should be."""
        host, surcharge = self._costs.overhead.ms, self._costs.surcharge
        runs = self._costs.by_own_tokens(load, 1 + len(draft.tokens))
        plain = runs[1] + host
        drawn = draft.proposals is not None and draft.parents is None
        best, best_gain = _Part((), 1.0), 1.0
        for part in _parts(draft):
            cost = runs[1 + len(part.nodes)] * (surcharge if part.tree else 1.0) + host
            gain = part.expected * plain / cost
            # A lone token is padded to a run of two: the first draft token of a stream that is
            # alone is free, and needs no margin.
            if gain > best_gain and (cost <= plain or gain >= _LEAST_GAIN):
                best, best_gain = part, gain
            elif drawn and part.nodes:
                break
        return best, best_gain


def _choices(candidate: Candidate, budget: int) -> Iterable[tuple[int, float]]:
    """The budgets worth considering, with the accepted tokens to expect of each: a tree is drafted
    in one piece, and cut afterwards."""
    most = _most(candidate, budget)
    if candidate.tree:
        return ((most, candidate.expected(most)),)
    return enumerate(accumulate(candidate.survival.shares(most)), start=1)


def _most(candidate: Candidate, budget: int) -> int:
    return budget if candidate.tree else min(budget, candidate.longest)


class _Part(NamedTuple):
    """Draft tokens to verify, and E[tau] with them: 1 + the sum of their path survivals."""

    nodes: Sequence[int]
    expected: float
    tree: bool = False


def _parts(draft: Draft) -> Iterator[_Part]:
    """Of every size the part of most expected tokens: as a chain, and where there are forks."""
    parents = draft.parents or range(-1, len(draft.tokens) - 1)
    survival: list[float] = []
    for parent, confidence in zip(parents, draft.confidence or (1.0,) * len(parents), strict=True):
        survival.append(confidence if parent < 0 else survival[parent] * confidence)
    if draft.parents is None:
        for size, expected in enumerate(accumulate(survival, initial=1.0)):
            yield _Part(range(size), expected)
        return
    yield from _chains(parents, survival)
    # Nothing survives its parent, so the likeliest tokens always have theirs among them.
    likeliest = sorted(range(len(survival)), key=lambda node: -survival[node])
    for size, expected in enumerate(accumulate([survival[n] for n in likeliest], initial=1.0)):
        yield _Part(likeliest[:size], expected, tree=True)


def _chains(parents: Sequence[int], survival: Sequence[float]) -> Iterator[_Part]:
    """For every depth, the path to it of most expected tokens."""
    paths: list[tuple[int, ...]] = []
    expected: list[float] = []
    best: dict[int, int] = {}
    for node, parent in enumerate(parents):
        paths.append((*(paths[parent] if parent >= 0 else ()), node))
        expected.append((expected[parent] if parent >= 0 else 1.0) + survival[node])
        rival = best.setdefault(len(paths[node]), node)
        if expected[node] > expected[rival]:
            best[len(paths[node])] = node
    for node in best.values():
        yield _Part(paths[node], expected[node])


def _cut(draft: Draft, nodes: Sequence[int]) -> Draft:
    """`draft` reduced to `nodes`; a chain where that leaves no fork."""
    if len(nodes) == len(draft.tokens):
        return draft
    kept = sorted(nodes)
    parents: tuple[int, ...] | None = None
    if draft.parents is not None:
        place = {node: index for index, node in enumerate(kept)} | {-1: -1}
        parents = tuple(place[draft.parents[node]] for node in kept)
        if parents == tuple(range(-1, len(kept) - 1)):
            parents = None
    proposals, confidence, sources = draft.proposals, draft.confidence, draft.sources
    return Draft(
        tokens=tuple(draft.tokens[node] for node in kept),
        parents=parents,
        proposals=None if proposals is None else tuple(proposals[node] for node in kept),
        confidence=None if confidence is None else tuple(confidence[node] for node in kept),
        source=draft.source,
        sources=None if sources is None else tuple(sources[node] for node in kept),
    )
