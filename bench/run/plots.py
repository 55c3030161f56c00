"""Plots of a report, as SVG documents by the names of their files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from bench.run.schema import ALL, Absent, Interval, Metric, Quantity, RunCell
from bench.run.tables import by_load, load_name
from models.plot import Bar, Bars, Line, bar_plot, line_plot

_MOST_GROUPS = 6
"""Groups of bars in one plot: more have no room for their names."""


def plots_of(cells: Sequence[RunCell]) -> dict[str, str]:
    """What nobody measured is not drawn; a plot with nothing in it is left out."""
    return dict([*_ratios(cells), *_by_depth(cells), *_by_streams(cells), *_gaps(cells)])


def _ratios(cells: Sequence[RunCell]) -> Iterator[tuple[str, str]]:
    for (temperature, streams), members in by_load(cells).items():
        ratios = {
            (cell.setting, cell.workload.category): _bar(cell)
            for cell in members
            if isinstance(cell.baseline.ratio, Quantity)
        }
        settings = list(dict.fromkeys(setting for setting, _ in ratios))
        categories = list(dict.fromkeys(cell.workload.category for cell in members))
        starts = range(0, len(categories), _MOST_GROUPS) if settings else ()
        for part, start in enumerate(starts, start=1):
            groups = categories[start : start + _MOST_GROUPS]
            series = [
                Bars(name, [ratios.get((name, group)) for group in groups]) for name in settings
            ]
            title = f"Time per token over that of off: {load_name(temperature, streams)}"
            suffix = f"-{part}" if len(starts) > 1 else ""
            name = f"ratio-t{temperature:g}-c{streams}{suffix}.svg"
            yield name, bar_plot(title, "of off, 95 % interval", groups, series, 1.0)


def _bar(cell: RunCell) -> Bar:
    ratio, interval = cell.baseline.ratio, cell.baseline.interval
    assert isinstance(ratio, Quantity), "only what was measured is drawn"
    if isinstance(interval, Interval):
        return Bar(ratio.value, interval.low, interval.high)
    return Bar(ratio.value)


def _by_depth(cells: Sequence[RunCell]) -> Iterator[tuple[str, str]]:
    for (temperature, streams), members in by_load(_together(cells)).items():
        lines = [
            Line(cell.setting, points)
            for cell in members
            if not isinstance(cell.metrics.survival, Absent)
            and (points := _points(enumerate(cell.metrics.survival, start=1)))
        ]
        if lines:
            title = f"Survival: {load_name(temperature, streams)}"
            name = f"survival-t{temperature:g}-c{streams}.svg"
            yield name, line_plot(title, "depth in the draft", "share accepted", lines)


def _by_streams(cells: Sequence[RunCell]) -> Iterator[tuple[str, str]]:
    together = _together(cells)
    for temperature in dict.fromkeys(cell.sampling.temperature for cell in together):
        members = [cell for cell in together if cell.sampling.temperature == temperature]
        lines = [
            Line(name, points)
            for name in dict.fromkeys(cell.setting for cell in members)
            if (
                points := _points(
                    (cell.workload.concurrency, cell.metrics.tpot)
                    for cell in members
                    if cell.setting == name
                )
            )
        ]
        if lines:
            drawn = load_name(temperature, 1).partition(",")[0]
            title = f"Time per token by streams at once: {drawn}"
            plot = line_plot(title, "streams at once", "TPOT ms", lines)
            yield f"streams-t{temperature:g}.svg", plot


def _gaps(cells: Sequence[RunCell]) -> Iterator[tuple[str, str]]:
    for (temperature, streams), members in by_load(_together(cells)).items():
        lines = [
            Line(cell.setting, points)
            for cell in members
            if (
                points := _points(
                    (int(name.removeprefix("p")), gap)
                    for name, gap in cell.metrics.inter_token_latency.items()
                )
            )
        ]
        if lines:
            title = f"Time between arrivals: {load_name(temperature, streams)}"
            name = f"arrivals-t{temperature:g}-c{streams}.svg"
            yield name, line_plot(title, "percentile", "ms", lines)


def _together(cells: Sequence[RunCell]) -> list[RunCell]:
    return [cell for cell in cells if cell.workload.category == ALL]


def _points(pairs: Iterable[tuple[int, Metric]]) -> list[tuple[float, float]]:
    """In rising order; what has no figure is left out."""
    known = [(float(x), metric.value) for x, metric in pairs if isinstance(metric, Quantity)]
    return sorted(known)
