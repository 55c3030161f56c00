"""Policy `cost`: as many expected tokens per millisecond as can be."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.engine.costs.run_costs import RunCosts
from gateway.engine.costs.shape import Load
from gateway.engine.policies.allocation import LEAST_GAIN, most_gain, with_overhead
from gateway.engine.policies.base import Candidate, Drafting, Plan
from gateway.engine.policies.offers import Offer
from gateway.engine.policies.parts import Part, likeliest, parts, survivals
from gateway.engine.policies.trust import Trust
from models.draft import Draft

_PROBING = 0.008
"""Share of the time that may be spent on finding out whether a drafter pays by now."""


class CostPolicy(Drafting):
    """Maximises E[tau] / (T_draft + T_verify + T_host), plain decoding among the candidates.

    `plan` decides from measured survival before a learned drafter is run; what is verified of the
    draft is decided from its confidence, as far as outcomes bear it out, when the run is put
    together. Where no learned drafter pays, one is tried now and then, within a share of the time,
    so that it comes back when it does.
    """

    name = "cost"

    def __init__(self, length: int | None, costs: RunCosts) -> None:
        super().__init__(length)
        self._costs = costs
        self._trust = Trust()
        self._paid = False
        self._judged: tuple[Draft, list[float]] | None = None

    def plan(
        self, free: Draft, learned: Sequence[Candidate], load: Load, budget: int
    ) -> Plan | None:
        if budget <= 0 or not learned:
            return None
        runs = self._costs.by_own_tokens(load, 1 + budget)
        gain, plan = self._best_plan(learned, load, budget, runs)
        pays = gain >= LEAST_GAIN
        if pays and not self._gains(free, runs, gain):
            self._paid = True
            return plan
        again = self._paid and not pays
        self._paid = self._paid and pays
        return self._probe(plan, learned, load, runs, again=again)

    def offer(self, draft: Draft, load: Load) -> Offer:
        survival = self._survival_of(draft)
        if draft.parents is None:
            return Offer(draft, range(len(survival)), survival)
        runs = self._costs.by_own_tokens(load, 1 + len(survival))
        part, _ = self._best_part(draft, survival, runs)
        order = likeliest(survival) if part.tree else part.nodes
        return Offer(draft, order, [survival[node] for node in order], tree=part.tree)

    def observe(self, draft: Draft, said: Sequence[int]) -> None:
        self._judged = None
        self._trust.observe(draft, said)

    def _survival_of(self, draft: Draft) -> list[float]:
        """Path survivals by the confidences that are to be believed. What `plan` was told is free
        is often what is offered."""
        if self._judged is None or self._judged[0] is not draft:
            believed = self._trust.believed(draft)
            self._judged = draft, survivals(believed, draft.parents)
        return self._judged[1]

    def _best_plan(
        self, learned: Sequence[Candidate], load: Load, budget: int, runs: Sequence[float]
    ) -> tuple[float, Plan]:
        """The plan of most expected tokens per millisecond, against plain decoding."""
        host, surcharge, rows = self._costs.overhead.ms, self._costs.surcharge, load.rows
        best, name, asked = -1.0, learned[0].name, 1
        for each in learned:
            most = each.most(budget)
            shares = each.survival.shares(min(most, each.longest))
            drafts = each.costs.up_to(most)
            if each.tree:
                # Drafted in one piece, and cut afterwards.
                cost = runs[1 + most] * surcharge + host + rows * drafts[most]
                rate = (1.0 + sum(shares)) / cost
                if rate > best:
                    best, name, asked = rate, each.name, most
                continue
            tau = 1.0
            terms = zip(shares, runs[2:], drafts[1:], strict=False)
            for length, (share, run, draft) in enumerate(terms, start=1):
                tau += share
                rate = tau / (run + host + rows * draft)
                if rate > best:
                    best, name, asked = rate, each.name, length
        return best * (runs[1] + host), Plan(name, asked)

    def _probe(
        self,
        plan: Plan,
        learned: Sequence[Candidate],
        load: Load,
        runs: Sequence[float],
        *,
        again: bool,
    ) -> Plan | None:
        """Once in a while the plan that came nearest to paying.

        What paid until now is tried `again` at once, unless that costs more than plain decoding: it
        may only have been held up.
        """
        plain = runs[1]
        (chosen,) = (each for each in learned if each.name == plan.name)
        wider = runs[1 + plan.budget] * (self._costs.surcharge if chosen.tree else 1.0)
        price = load.rows * (chosen.costs.predict(plan.budget) + max(0.0, wider - plain))
        granted = chosen.probation.allows(price, _PROBING * plain / load.rows)
        return plan if granted or (again and price < plain) else None

    def _gains(self, draft: Draft, runs: Sequence[float], gain: float) -> bool:
        """Whether the best part of `draft` should be so many times as fast as plain decoding."""
        survival = self._survival_of(draft)
        if 1.0 + sum(survival) < gain:
            return False  # not even if it were verified for nothing
        if draft.parents is not None:
            return self._best_part(draft, survival, runs)[1] >= gain
        times = with_overhead(runs[1 : 2 + len(survival)], self._costs.overhead.ms)
        return most_gain(survival, times)[1] >= gain

    def _best_part(
        self, draft: Draft, survival: Sequence[float], runs: Sequence[float]
    ) -> tuple[Part, float]:
        """What to verify of a tree, and how much faster than plain decoding that should be."""
        host, surcharge = self._costs.overhead.ms, self._costs.surcharge
        plain = runs[1] + host
        best, best_gain = Part((), 1.0), 1.0
        for part in parts(draft.parents or (), survival):
            cost = runs[1 + len(part.nodes)] * (surcharge if part.tree else 1.0) + host
            gain = part.expected * plain / cost
            if gain > best_gain and (cost <= plain or gain >= LEAST_GAIN):
                best, best_gain = part, gain
        return best, best_gain
