"""Plots of a run under load, as SVG documents by the names of their files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from bench.run.schema import Metric, Quantity
from bench.serve.plan import Plan
from bench.serve.schema import LoadCell, PhaseCell, ServeReport
from models.plot import Line, line_plot

_WHAT: Sequence[tuple[str, str, str, Callable[[LoadCell], Metric]]] = (
    ("goodput", "Goodput", "answers in time per second", lambda cell: cell.goodput),
    ("throughput", "Throughput", "tokens/s", lambda cell: cell.throughput),
    ("tpot", "Time per token", "median TPOT ms", lambda cell: cell.tpot["p50"]),
    ("ttft", "Time to the first token", "median TTFT ms", lambda cell: cell.ttft["p50"]),
)


def plots_of(report: ServeReport, plan: Plan) -> dict[str, str]:
    """What has fewer than two points, or was not measured, is not drawn."""
    return dict([*_by_load(report, plan), *_by_round(report)])


def _by_load(report: ServeReport, plan: Plan) -> Iterator[tuple[str, str]]:
    kinds = (
        ("streams", "streams at once", {load.label: load.streams for load in plan.loads}),
        ("rate", "requests per second", {load.label: load.rate for load in plan.loads}),
    )
    for kind, axis, places in kinds:
        for name, title, unit, metric in _WHAT:
            lines = [
                Line(policy, points)
                for policy in dict.fromkeys(cell.policy for cell in report.loads)
                if len(points := _points(report.loads, policy, places, metric)) > 1
            ]
            if lines:
                yield f"{name}-by-{kind}.svg", line_plot(title, axis, unit, lines)


def _points(
    cells: Sequence[LoadCell],
    policy: str,
    places: dict[str, int | None] | dict[str, float | None],
    metric: Callable[[LoadCell], Metric],
) -> list[tuple[float, float]]:
    known = [(places[cell.load], metric(cell)) for cell in cells if cell.policy == policy]
    return sorted(
        (float(at), figure.value)
        for at, figure in known
        if at is not None and isinstance(figure, Quantity)
    )


def _by_round(report: ServeReport) -> Iterator[tuple[str, str]]:
    """The width of the first stream's rounds, phase behind phase."""
    lines = [
        Line(policy, points, marks=False)
        for policy in dict.fromkeys(cell.policy for cell in report.phases)
        if (points := _widths([cell for cell in report.phases if cell.policy == policy]))
    ]
    if lines:
        streams = {cell.phase: str(cell.streams) for cell in report.phases}
        title = f"Draft tokens verified in a round: {', then '.join(streams.values())} streams"
        yield "width-by-round.svg", line_plot(title, "round of the first stream", "tokens", lines)


def _widths(cells: Sequence[PhaseCell]) -> list[tuple[float, float]]:
    """One phase behind the other; policies need different numbers of rounds for a phase."""
    widths = [width for cell in cells for width in cell.widths]
    return [(float(number), width) for number, width in enumerate(widths, start=1)]
