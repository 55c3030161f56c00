"""What the gateway's own cost model says of a round, from its `/v1/status`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gateway.engine.costs.coefficients import Coefficients
from gateway.engine.costs.draft_costs import DraftCosts
from gateway.engine.costs.shape import RunShape


@dataclass(frozen=True, slots=True)
class CostModel:
    """As corrected by the rounds so far: runs by their shape, drafts by their length, and the
    host's share of a round, all in milliseconds."""

    runs: Coefficients
    drafts: DraftCosts
    overhead_ms: float

    @classmethod
    def of(cls, status: Mapping[str, Any], drafter: str) -> CostModel:
        costs = status["costs"]
        factor = costs["factor"]
        curve = tuple((int(tokens), ms) for tokens, ms in status["run_ms"].items())
        drafted = {one["name"]: one["run_ms"] for one in status["drafters"]}.get(drafter, {})
        return cls(
            Coefficients(
                curve=tuple(sorted(curve)),
                per_row=factor * costs["per_row"],
                per_past=factor * costs["per_past"],
                per_work=factor * costs["per_work"],
            ),
            DraftCosts({int(length): ms for length, ms in drafted.items()}),
            costs["overhead_ms"],
        )

    def round_ms(self, streams: int, length: int, past: int) -> float:
        """Of `streams` streams behind `past` cached tokens each, with drafts of `length`: their
        drafts are made one after another, their rows are verified in one run."""
        run = self.runs.predict(RunShape.of([(past, 1 + length)] * streams))
        drafted = streams * self.drafts.predict(length) if length else 0.0
        return run + drafted + self.overhead_ms
