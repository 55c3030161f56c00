"""Policies by name."""

from __future__ import annotations

from gateway.engine.costs.run_costs import RunCosts
from gateway.engine.policies.base import Policy
from gateway.engine.policies.confidence import ConfidencePolicy
from gateway.engine.policies.cost import CostPolicy
from gateway.engine.policies.ema_tiers import EmaTiersPolicy
from gateway.engine.policies.fixed import AdasdPolicy, FixedPolicy, OffPolicy
from gateway.engine.policies.slo import SloPolicy
from gateway.engine.requests import Speculation


def make_policy(speculation: Speculation, costs: RunCosts) -> Policy:
    """The policy of one request, made when its first token is there."""
    length = speculation.length
    if not speculation.drafts:
        return OffPolicy(length)
    match speculation.policy:
        case "fixed":
            return FixedPolicy(length)
        case "adasd":
            return AdasdPolicy(length)
        case "ema-tiers":
            return EmaTiersPolicy(length)
        case "confidence":
            return ConfidencePolicy(length, costs)
        case "slo":
            assert speculation.tpot_ms is not None, "checked where requests are read"
            return SloPolicy(length, costs, speculation.tpot_ms)
        case _:
            return CostPolicy(length, costs)
