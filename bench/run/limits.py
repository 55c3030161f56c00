"""What cells say together: policies against the best fixed length, and what limits each setting."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bench.run.plan import FIXED
from bench.run.schema import Metric, Quantity, RunCell
from bench.sheets import Sheet
from gateway.engine.names import OFF

_NONE = "missing"


def comparisons(cells: Sequence[RunCell]) -> list[Sheet]:
    """Of cells under one load; those that have no row are left out."""
    return [each for each in (against_fixed(cells), limits(cells)) if each.rows]


_SETTING = ("setting", "as above")
_CATEGORY = ("category", "of the prompts; `all` is every prompt")


def against_fixed(cells: Sequence[RunCell]) -> Sheet:
    """Settings that choose their lengths, by category, against the fastest that does not."""
    rows = []
    for category in _categories(cells):
        members = [cell for cell in cells if cell.workload.category == category]
        fixed = [cell for cell in members if cell.speculation.policy == FIXED and _tpot(cell)]
        best = min(fixed, key=_tpot, default=None)
        if best is None:
            continue
        rows += [
            (
                cell.setting,
                category,
                best.setting,
                _ratio(_tpot(best), _tpot(cell)),
                _ratio(_value(cell.baseline.tpot), _tpot(cell)),
                _ratio(_value(best.baseline.tpot), _tpot(best)),
            )
            for cell in members
            if cell.speculation.policy not in (FIXED, OFF)
        ]
    return Sheet(
        "Against the best fixed length",
        dict(
            (
                _SETTING,
                _CATEGORY,
                (
                    "best fixed",
                    "of the settings with a fixed length the one of least TPOT in this category:"
                    " chosen afterwards, by these very answers",
                ),
                (
                    "x best fixed",
                    "its TPOT over that of the setting; above 1 the setting is faster",
                ),
                ("x off", "TPOT of `off` over that of the setting"),
                ("best fixed x off", "TPOT of `off` over that of the best fixed length"),
            )
        ),
        tuple(rows),
    )


def limits(cells: Sequence[RunCell]) -> Sheet:
    """Tokens a round against what a round takes, in rounds of `off`."""
    plain = {
        cell.workload.category: _round_ms(cell)
        for cell in cells
        if cell.speculation.policy == OFF and _round_ms(cell)
    }
    rows = []
    for cell in cells:
        off, own = plain.get(cell.workload.category), _round_ms(cell)
        tau, draft = _value(cell.metrics.tau), _value(cell.metrics.draft_time)
        if cell.speculation.policy == OFF or not (off and own and tau):
            continue
        rows.append(
            (
                cell.setting,
                cell.workload.category,
                f"{tau:.2f}",
                f"{own / off:.2f}",
                f"{draft / off:.2f}",
                f"{(own - draft) / off:.2f}",
                f"{tau * off / own:.2f}",
                f"{tau * off / (own - draft):.2f}",
            )
        )
    return Sheet(
        "What limits the speed-up",
        dict(
            (
                _SETTING,
                _CATEGORY,
                (
                    "tau",
                    "tokens a round advances: what the speed-up would be if a round cost no more",
                ),
                (
                    "round / off's",
                    "drafting, verifying and overhead of a round, over those of a round of `off`",
                ),
                ("drafting", "of it"),
                (
                    "verifying",
                    "of it, overhead included: 1 would be a run as cheap as one of `off`",
                ),
                ("x off", "tau over the round's cost: the speed-up by the gateway's clocks"),
                (
                    "with free drafts",
                    "the same if drafting took no time: no drafter as good is faster",
                ),
            )
        ),
        tuple(rows),
    )


def _categories(cells: Iterable[RunCell]) -> list[str]:
    return list(dict.fromkeys(cell.workload.category for cell in cells))


def _value(metric: Metric) -> float:
    """0 where it has no figure."""
    return metric.value if isinstance(metric, Quantity) else 0.0


def _tpot(cell: RunCell) -> float:
    return _value(cell.metrics.tpot)


def _round_ms(cell: RunCell) -> float:
    """0 where it was not measured; `off` has no drafting."""
    metrics = cell.metrics
    if not isinstance(metrics.verify_time, Quantity) or not isinstance(
        metrics.overhead_time, Quantity
    ):
        return 0.0
    return _value(metrics.draft_time) + metrics.verify_time.value + metrics.overhead_time.value


def _ratio(numerator: float, denominator: float) -> str:
    return f"{numerator / denominator:.2f}" if numerator and denominator else _NONE
