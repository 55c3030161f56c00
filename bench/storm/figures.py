"""What windows, memory, slots and log say together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from statistics import median

from bench.report import Findings, Promise, Table, milliseconds, none_of
from bench.run.statistics import median_interval
from bench.storm.plan import Plan
from bench.storm.weather import Outcome, Window

RATIO = 1.10
"""Time per token in the storm over that alone: the median of pairs of windows, since a machine
that does something else for some seconds spoils a pair and no more."""

GROWTH_MIB = 20.0
"""Of resident memory over the later half of the storms: in the earlier ones what is bounded
fills up."""

CONNECTION_KIB = 256.0
"""Of resident memory for a connection, at the peak."""

_SHOWN_ERRORS = 20
_MIB = 1 << 20


def findings(plan: Plan, outcome: Outcome) -> Findings:
    alone, storm = _kinds(outcome.windows)
    ratios = [among / calm for among, calm in zip(storm, alone, strict=True)]
    ratio = median(ratios)
    interval = median_interval(ratios, plan.seed) if len(ratios) > 1 else None
    strange = [line for line in outcome.log if line.is_error and not line.of_a_client]
    lost = sum(outcome.slots - free for free in outcome.free) + sum(outcome.waiting)
    growth = _growth(outcome.resident) / _MIB
    peak = (outcome.memory.peak - outcome.resident[0]) / 1024 / plan.strangers
    figures = {
        "windows": [{**asdict(window), "mean_ms": window.mean_ms} for window in outcome.windows],
        "ratio": ratio,
        "ratios": ratios,
        "interval": interval,
        "resident_bytes": list(outcome.resident),
        "memory": outcome.memory.samples,
        "slots": outcome.slots,
        "free_slots": list(outcome.free),
        "waiting": list(outcome.waiting),
        "acts": dict(outcome.acts),
        "log": _log(outcome),
        "errors": [asdict(line) for line in strange[:_SHOWN_ERRORS]],
        "gateway_cpu_seconds": outcome.gateway_cpu,
        "bench_cpu_seconds": outcome.bench_cpu,
    }
    promises = [
        Promise("TPOT in the storm over that alone", ratio, "<=", RATIO, note=_spread(interval)),
        none_of("slots lost, requests left waiting", lost),
        Promise("growth of memory over the later storms", growth, "<=", GROWTH_MIB, "MiB"),
        Promise("memory for a connection, at the peak", peak, "<=", CONNECTION_KIB, "KiB"),
        none_of("errors in the log that are not about the storm's clients", len(strange)),
    ]
    return Findings(_settings(plan), figures, promises, _tables(plan, outcome))


def _settings(plan: Plan) -> dict[str, object]:
    return {
        **asdict(plan),
        "stalling": plan.stalling,
        "dropping": plan.dropping,
        "garbling": plan.garbling,
        "idle": plan.idle,
    }


def _kinds(windows: Sequence[Window]) -> tuple[list[float], list[float]]:
    """Mean times alone and in the storm, in their order."""
    return (
        [window.mean_ms for window in windows if not window.storm],
        [window.mean_ms for window in windows if window.storm],
    )


def _growth(resident: Sequence[int]) -> int:
    """Bytes from behind the storm in the middle, of two the first, to behind the last one."""
    return resident[-1] - resident[len(resident) // 2]


def _log(outcome: Outcome) -> dict[str, int]:
    """Lines by level, those about clients apart."""
    counts: dict[str, int] = {}
    for line in outcome.log:
        name = f"{line.level}, of a client" if line.of_a_client else line.level
        counts[name] = counts.get(name, 0) + 1
    return counts


def _tables(plan: Plan, outcome: Outcome) -> list[Table]:
    tables = [
        Table(
            "Windows",
            ("", "connections", "seconds", "TPOT ms", "slowest stream"),
            [
                (
                    "storm" if window.storm else "alone",
                    str(window.connections),
                    f"{window.seconds:.1f}",
                    milliseconds(window.mean_ms),
                    milliseconds(max(window.tpot_ms)),
                )
                for window in outcome.windows
            ],
        ),
        Table(
            "The storm",
            ("", ""),
            [
                ("stall without reading", str(plan.stalling)),
                ("drop at random", str(plan.dropping)),
                ("send garbage", str(plan.garbling)),
                ("do nothing", str(plan.idle)),
                *((name, str(count)) for name, count in sorted(outcome.acts.items())),
                ("processor seconds of the gateway", f"{outcome.gateway_cpu:.1f}"),
                ("processor seconds of the bench", f"{outcome.bench_cpu:.1f}"),
            ],
        ),
        Table(
            "Memory of the gateway, MiB",
            ("", ""),
            [
                ("before", f"{outcome.resident[0] / _MIB:.1f}"),
                *(
                    (f"behind storm {number}", f"{size / _MIB:.1f}")
                    for number, size in enumerate(outcome.resident[1:], start=1)
                ),
                ("peak", f"{outcome.memory.peak / _MIB:.1f}"),
            ],
        ),
    ]
    if errors := [line for line in outcome.log if line.is_error and not line.of_a_client]:
        rows = [(line.message, line.level, line.logger) for line in errors[:_SHOWN_ERRORS]]
        tables.append(Table("Errors in the log", ("", "", ""), rows))
    return tables


def _spread(interval: tuple[float, float] | None) -> str:
    return "" if interval is None else f"95 % {interval[0]:.3f} to {interval[1]:.3f}"
