"""Bars of a report of peers, as SVG documents by the names of their files."""

from __future__ import annotations

from bench.peers.schema import PeersReport, Ratio
from bench.peers.tables import together
from bench.run.schema import ALL, Interval, Quantity
from models.plot import Bar, Bars, bar_plot

_MOST_GROUPS = 6
"""Groups of bars in one plot: more have no room for their names."""


def plots_of(report: PeersReport) -> dict[str, str]:
    """What has no figure is not drawn."""
    times = [
        (row.contestant, row.time_per_token.value)
        for row in together(report)
        if isinstance(row.time_per_token, Quantity)
    ]
    bars = [Bars(name, [Bar(value)]) for name, value in times]
    plots = {"times.svg": bar_plot("Time per token", "ms per token", [ALL], bars)}
    categories = list(dict.fromkeys(row.category for row in report.rows))
    names = [group.name for group in report.contestants if not group.ours]
    basis = report.bases[0]
    found = {(row.contestant, row.category): row.against[basis] for row in report.rows}
    for part, start in enumerate(range(0, len(categories), _MOST_GROUPS), start=1):
        groups = categories[start : start + _MOST_GROUPS]
        series = [
            Bars(name, [_bar(found.get((name, group))) for group in groups]) for name in names
        ]
        title = f"Time per token over that of {basis}, 95 % interval"
        plots[f"ratios-{part}.svg"] = bar_plot(title, "times ours", groups, series, 1.0)
    return plots


def _bar(found: Ratio | None) -> Bar | None:
    if found is None or not isinstance(found.ratio, Quantity):
        return None
    if isinstance(found.interval, Interval):
        return Bar(found.ratio.value, found.interval.low, found.interval.high)
    return Bar(found.ratio.value)
