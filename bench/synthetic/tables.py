"""The tables and heat maps of a grid."""

from __future__ import annotations

from collections.abc import Sequence

from bench.run.schema import Absent, Interval, Metric, Quantity
from bench.run.tables import shown
from bench.sheets import Sheet
from bench.synthetic.schema import Cell, Report
from models.plot import heat_map

AGREEMENT = 0.10
"""How far the cost model may be off."""

_COLUMNS = {
    "draft": "tokens proposed in a round",
    "alpha": "probability that is imposed on each of them, if those before it were accepted",
    "tau": "tokens a round advanced, as measured; acceptance is drawn, so it scatters",
    "formula": "the same by (1 - alpha^(draft + 1)) / (1 - alpha)",
    "round ms": "time of a round of a stream, measured by its client while all streams ran",
    "predicted": "the same by the gateway's cost model, as it stood just before",
    "off": "of it: by what share the prediction is off",
    "ms/token": "measured time per token of a stream",
    "token off": "by what share predicted round over the formula's tau is off it",
    "plain ms": "time of a round of plain decoding in the same blocks, which is its time per token",
    "plain off": "by what share the cost model was off it",
    "speed-up": "time per token of plain decoding over that: above 1 is faster",
    "95 % interval": "of it: bootstrap over repeats, each with plain decoding of the same block",
    "by formula": "the formula's tau over measured time of a round in units of plain decoding",
    "by model": "the formula's tau over predicted time of a round in units of plain decoding",
    "break-even": "alpha at which such a round is as fast as plain decoding, by measured times",
}


def sheets_of(report: Report) -> list[Sheet]:
    """A table for each load, and how often the prediction was right."""
    return [*(_grid(streams, cells) for streams, cells in by_load(report)), _agreement(report)]


def by_load(report: Report) -> list[tuple[int, list[Cell]]]:
    loads = dict.fromkeys(cell.concurrency for cell in report.cells)
    return [(n, [cell for cell in report.cells if cell.concurrency == n]) for n in loads]


def _grid(streams: int, cells: Sequence[Cell]) -> Sheet:
    rows = [
        (
            str(cell.length),
            f"{cell.alpha:g}",
            shown(cell.tau),
            shown(cell.tau_formula),
            shown(cell.round),
            shown(cell.round_predicted),
            _percent(cell.round_error),
            shown(cell.token),
            _percent(cell.token_error),
            shown(cell.off_token),
            _percent(cell.off_error),
            shown(cell.speedup),
            _interval(cell.interval),
            shown(cell.speedup_formula),
            shown(cell.speedup_predicted),
            shown(cell.break_even),
        )
        for cell in cells
    ]
    return Sheet(load_name(streams), _COLUMNS, rows)


def _agreement(report: Report) -> Sheet:
    columns = {
        "streams": "at once",
        "points": "measured, with drafts of the length asked for",
        "round": f"share of them whose round was predicted within {AGREEMENT:.0%}",
        "token": f"share of them whose time per token was predicted within {AGREEMENT:.0%}",
        "worst round": "the largest error of a round, with its sign",
        "worst token": "the same of the time per token: what is drawn adds to it",
    }
    rows = []
    for streams, cells in by_load(report):
        rounds = [c.round_error.value for c in cells if isinstance(c.round_error, Quantity)]
        tokens = [c.token_error.value for c in cells if isinstance(c.token_error, Quantity)]
        if rounds and tokens:
            shares = (f"{_within(rounds):.2f}", f"{_within(tokens):.2f}")
            worst = (f"{max(rounds, key=abs):+.1%}", f"{max(tokens, key=abs):+.1%}")
            rows.append((str(streams), str(len(rounds)), *shares, *worst))
    return Sheet("Predicted and measured", columns, rows)


def problems(report: Report) -> list[tuple[str, str, str]]:
    """Point, word and reason of what has no speed-up."""
    return [
        (f"{cell.concurrency} x {cell.length}, {cell.alpha:g}", word(cell.speedup), why)
        for cell in report.cells
        if isinstance(cell.speedup, Absent) and (why := cell.speedup.why)
    ]


def plots_of(report: Report) -> dict[str, str]:
    """Heat maps of speed-ups, and of how far the model is off, by the names of their files."""
    plots: dict[str, str] = {}
    for streams, cells in by_load(report):
        for name, what, values, middle in (
            ("measured", "Speed-up, measured", [c.speedup for c in cells], 1.0),
            ("formula", "Speed-up by the formula", [c.speedup_formula for c in cells], 1.0),
            ("predicted", "Speed-up by the cost model", [c.speedup_predicted for c in cells], 1.0),
            ("difference", "Model's error in time per token, %", _percents(cells), 0.0),
        ):
            if any(isinstance(value, Quantity) for value in values):
                title = f"{what}: {report.shape}, {load_name(streams)}"
                plots[f"{name}-c{streams}.svg"] = _map(title, cells, values, middle)
    return plots


def load_name(streams: int) -> str:
    return f"{streams} stream{'' if streams == 1 else 's'} at once"


def _percents(cells: Sequence[Cell]) -> list[Metric]:
    return [
        Quantity(100 * cell.token_error.value, "%")
        if isinstance(cell.token_error, Quantity)
        else cell.token_error
        for cell in cells
    ]


def _map(title: str, cells: Sequence[Cell], values: Sequence[Metric], middle: float) -> str:
    lengths = list(dict.fromkeys(cell.length for cell in cells))
    alphas = list(dict.fromkeys(cell.alpha for cell in cells))
    at = {
        (cell.alpha, cell.length): value.value
        for cell, value in zip(cells, values, strict=True)
        if isinstance(value, Quantity)
    }
    grid = [[at.get((alpha, length)) for length in lengths] for alpha in alphas]
    names = [f"{alpha:g}" for alpha in alphas]
    return heat_map(title, "draft tokens", "alpha", [str(n) for n in lengths], names, grid, middle)


def _within(errors: Sequence[float]) -> float:
    return sum(abs(error) <= AGREEMENT for error in errors) / len(errors)


def word(absent: Absent) -> str:
    return absent.absent.replace("_", " ")


def _percent(error: Metric) -> str:
    return f"{error.value:+.1%}" if isinstance(error, Quantity) else shown(error)


def _interval(interval: Interval | Absent) -> str:
    if isinstance(interval, Absent):
        return word(interval)
    return f"{interval.low:.2f} to {interval.high:.2f}"
