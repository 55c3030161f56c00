"""Policy `confidence`: every round drafts, and what the drafter is sure of is verified."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.engine.costs.shape import Load
from gateway.engine.policies.base import Candidate, Plan, most_expected
from gateway.engine.policies.cost import CostPolicy
from models.draft import Draft


class ConfidencePolicy(CostPolicy):
    """The drafter that is expected to yield most always runs, as far as it may. Its confidence in
    each token, calibrated to survival, competes with that of the run's other rows for a place
    (DSpark's and AdaSpec's view of verification as a shared budget).

    Unlike `cost` it neither shortens drafts beforehand nor does without them: right where drafting
    costs next to nothing and acceptance changes from token to token.
    """

    name = "confidence"

    def plan(
        self, free: Draft, learned: Sequence[Candidate], load: Load, budget: int
    ) -> Plan | None:
        return most_expected(free, learned, budget)
