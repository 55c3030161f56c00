"""Policy `slo`: first every request's target for the time per token, then the sum."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from gateway.engine.costs.run_costs import RunCosts
from gateway.engine.costs.shape import Load
from gateway.engine.policies.cost import CostPolicy
from gateway.engine.policies.offers import Need, Offer
from models.draft import Draft


class SloPolicy(CostPolicy):
    """Drafts as `cost` does. When a run is put together, rows that are behind their target get what
    they need of its width before others get more (as AdaServe, arXiv 2501.12162, divides it); a row
    that cannot reach its target by any width does not keep others from theirs.

    `tpot_ms` is the mean time per token after the first that the answer may take. Drawn drafts
    under rule `classic` are taken as `cost` takes them: what a row needs could depend on what was
    drawn.
    """

    name = "slo"

    def __init__(
        self,
        length: int | None,
        costs: RunCosts,
        tpot_ms: float,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        super().__init__(length, costs)
        self._tpot_ms = tpot_ms
        self._clock = clock
        self._started = clock()
        self._tokens = -1  # the first token, which is told like the others, came with the prompt

    def offer(self, draft: Draft, load: Load) -> Offer:
        elapsed = (self._clock() - self._started) * 1e3
        offer = super().offer(draft, load)
        offer.need = Need(self._tpot_ms, elapsed, self._tokens)
        return offer

    def observe(self, draft: Draft, said: Sequence[int]) -> None:
        super().observe(draft, said)
        self._tokens += len(said)
