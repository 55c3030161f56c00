"""What an engine is doing, and what it has learnt of its drafters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gateway.engine.costs.cache import Calibrated
from gateway.engine.costs.run_costs import RunCosts
from models.capture import GraphStatus


@dataclass(frozen=True, slots=True)
class DrafterStatus:
    """What is known of one drafter.

    `survival` (by depth, greedy chains) and `run_ms` (by tokens asked for) are as measured here so
    far; `draft_n` counts the verified tokens of all answers that ended. `failures` counts drafts
    that ended in an error; `problem` is what was last wrong.
    """

    name: str
    loaded: bool
    checkpoint: str | None = None
    reads: str | None = None
    longest: int | None = None
    draft_n: int = 0
    draft_n_accepted: int = 0
    survival: tuple[float, ...] = ()
    run_ms: Mapping[int, float] = field(default_factory=dict)
    failures: int = 0
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class CostStatus:
    """What runs cost, in milliseconds: T = run_ms(tokens) + per_row * (rows - 1)
    + per_past * cached tokens + per_work * cached tokens * tokens of their row.

    `source` is `measured` or `cached`, from `measured_at`; what was cached is `scaled` to the speed
    of this start. `fit_error` is the largest relative error on runs that were not fitted.
    `factor`, `residuals` (by the most tokens of a bucket of widths; 0: the widest) and `tree` (the
    surcharge of trees) are what runs have corrected since. `overhead_ms` is a round's time beside
    its runs.
    """

    source: str
    measured_at: str
    scaled: float
    fit_error: float | None
    per_row: float
    per_past: float
    per_work: float
    factor: float
    residuals: Mapping[int, float]
    tree: float
    overhead_ms: float


def cost_status(costs: RunCosts, calibrated: Calibrated) -> CostStatus:
    known, corrections = costs.coefficients, costs.corrections()
    errors = calibrated.calibration.errors()
    return CostStatus(
        source="cached" if calibrated.cached else "measured",
        measured_at=calibrated.measured_at,
        scaled=calibrated.scaled,
        fit_error=max(errors, key=abs) if errors else None,
        per_row=known.per_row,
        per_past=known.per_past,
        per_work=known.per_work,
        factor=corrections.factor,
        residuals=dict(corrections.residuals),
        tree=corrections.tree,
        overhead_ms=costs.overhead.ms,
    )


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """A snapshot. `drafter` is what requests get that name none; `run_ms` is by the tokens of a
    run of one row without a past, as corrected so far. `graphs` says how runs on a device ran; None
    on a processor."""

    model: str
    device: str
    exact: bool
    differences: tuple[str, ...]
    slots: int
    free_slots: int
    kv_tokens: int
    running: int
    waiting: int
    memory_bytes: int
    run_ms: Mapping[int, float]
    costs: CostStatus
    drafter: str
    drafters: tuple[DrafterStatus, ...]
    graphs: GraphStatus | None = None
