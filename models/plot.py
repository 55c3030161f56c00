"""Plots as SVG text: lines, bars with whiskers, heat maps. No library needed to make them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b", "#17becf", "#7f7f7f")
_WIDTH, _HEIGHT = 760, 440
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 190, 44, 64
_TICKS = 6


@dataclass(frozen=True, slots=True)
class Line:
    """A named curve through `points` (x, y), with a mark at each where `marks`."""

    name: str
    points: Sequence[tuple[float, float]]
    marks: bool = True


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar up to `value`, with a whisker from `low` to `high` where both are given."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Bars:
    """A named series with a bar for each group; None where there is nothing to show."""

    name: str
    bars: Sequence[Bar | None]


def line_plot(
    title: str, x_label: str, y_label: str, lines: Sequence[Line], reference: float | None = None
) -> str:
    """An SVG document. `reference` draws a level line; the y axis contains 0 and everything."""
    xs = [x for line in lines for x, _ in line.points]
    ys = [y for line in lines for _, y in line.points] + ([] if reference is None else [reference])
    across = _Scale(_ticks(min(xs, default=0.0), max(xs, default=1.0)), _LEFT, _WIDTH - _RIGHT)
    up = _upwards(ys)
    parts = [*_y_axis(up, y_label), *_x_label(x_label), *_level(up, reference)]
    for tick in across.ticks:
        parts.append(_text(across(tick), _HEIGHT - _BOTTOM + 18, _number(tick)))
    for index, line in enumerate(lines):
        places = [(across(x), up(y)) for x, y in line.points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        colour = _colour(index)
        parts.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.8"/>'
        )
        if line.marks:
            parts += [
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places
            ]
    return _document(title, [*parts, *_legend([line.name for line in lines])])


def bar_plot(
    title: str,
    y_label: str,
    groups: Sequence[str],
    series: Sequence[Bars],
    reference: float | None = None,
) -> str:
    """An SVG document with one cluster of bars for each of `groups`, a colour for each series."""
    known = [bar for one in series for bar in one.bars if bar is not None]
    ys = [end for bar in known for end in (bar.value, bar.low, bar.high) if end is not None]
    up = _upwards(ys + ([] if reference is None else [reference]))
    parts = [*_y_axis(up, y_label)]
    cluster = (_WIDTH - _LEFT - _RIGHT) / max(1, len(groups))
    width = 0.8 * cluster / max(1, len(series))
    for group, label in enumerate(groups):
        start = _LEFT + (group + 0.1) * cluster
        parts.append(_text(start + 0.4 * cluster, _HEIGHT - _BOTTOM + 18, label))
        for index, one in enumerate(series):
            bar = one.bars[group]
            if bar is not None:
                parts += _bar(bar, up, start + index * width, width, _colour(index))
    parts += _level(up, reference)
    return _document(title, [*parts, *_legend([one.name for one in series])])


def heat_map(
    title: str,
    x_label: str,
    y_label: str,
    columns: Sequence[str],
    rows: Sequence[str],
    values: Sequence[Sequence[float | None]],
    middle: float | None = None,
) -> str:
    """An SVG document of `values[row][column]`, the first row on top; None stays blank.

    White is the least value, or `middle`, below which cells turn red.
    """
    known = [value for row in values for value in row if value is not None]
    least, most = min(known, default=0.0), max(known, default=1.0)
    width = (_WIDTH - _LEFT - 20) / max(1, len(columns))
    height = (_HEIGHT - _TOP - _BOTTOM) / max(1, len(rows))
    parts = [*_x_label(x_label, _WIDTH - 20), *_y_label(y_label)]
    for column, label in enumerate(columns):
        parts.append(_text(_LEFT + (column + 0.5) * width, _HEIGHT - _BOTTOM + 18, label))
    for row, label in enumerate(rows):
        y = _TOP + row * height
        parts.append(_text(_LEFT - 8, y + height / 2 + 4, label, "end"))
        for column, value in enumerate(values[row]):
            x = _LEFT + column * width
            fill = "none" if value is None else _heat(value, least, most, middle)
            parts.append(
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" '
                f'fill="{fill}" stroke="#ccc"/>'
            )
            if value is not None:
                parts.append(_text(x + width / 2, y + height / 2 + 4, _number(value)))
    return _document(title, parts)


@dataclass(frozen=True, slots=True)
class _Scale:
    """Places from `start` (at the first tick) to `end` (at the last one)."""

    ticks: Sequence[float]
    start: float
    end: float

    def __call__(self, value: float) -> float:
        first, last = self.ticks[0], self.ticks[-1]
        return self.start + (value - first) / (last - first) * (self.end - self.start)


def _upwards(values: Sequence[float]) -> _Scale:
    ticks = _ticks(min(0.0, *values, 0.0), max(values, default=1.0))
    return _Scale(ticks, _HEIGHT - _BOTTOM, _TOP)


def _ticks(least: float, most: float) -> list[float]:
    """Round numbers, some `_TICKS` of them, from at most `least` to at least `most`."""
    if most <= least:
        most = least + 1.0
    raw = (most - least) / _TICKS
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(times * power for times in (1, 2, 5, 10) if times * power >= raw * (1 - 1e-9))
    first, last = math.floor(least / step + 1e-9), math.ceil(most / step - 1e-9)
    return [index * step for index in range(first, last + 1)]


def _bar(bar: Bar, up: _Scale, x: float, width: float, colour: str) -> list[str]:
    top, bottom = sorted((up(bar.value), up(0.0)))
    parts = [
        f'<rect x="{x:.1f}" y="{top:.1f}" width="{width:.1f}" height="{bottom - top:.1f}" '
        f'fill="{colour}"/>'
    ]
    if bar.low is not None and bar.high is not None:
        middle = x + width / 2
        parts.append(_stroke(middle, up(bar.low), middle, up(bar.high), "#000"))
        for end in (bar.low, bar.high):
            parts.append(_stroke(middle - 3, up(end), middle + 3, up(end), "#000"))
    return parts


def _y_axis(up: _Scale, label: str) -> list[str]:
    parts = _y_label(label)
    for tick in up.ticks:
        y = up(tick)
        parts.append(_stroke(_LEFT, y, _WIDTH - _RIGHT, y, "#ddd"))
        parts.append(_text(_LEFT - 8, y + 4, _number(tick), "end"))
    return parts


def _x_label(label: str, end: float = _WIDTH - _RIGHT) -> list[str]:
    return [_text((_LEFT + end) / 2, _HEIGHT - 18, label)]


def _y_label(label: str) -> list[str]:
    middle = (_TOP + _HEIGHT - _BOTTOM) / 2
    return [f'<g transform="rotate(-90 16 {middle:.1f})">{_text(16, middle, label)}</g>']


def _level(up: _Scale, reference: float | None) -> list[str]:
    if reference is None:
        return []
    return [_stroke(_LEFT, up(reference), _WIDTH - _RIGHT, up(reference), "#000", dashed=True)]


def _legend(names: Sequence[str]) -> list[str]:
    parts, x = [], _WIDTH - _RIGHT + 14
    for index, name in enumerate(names):
        y = _TOP + 20 * index
        parts.append(f'<rect x="{x}" y="{y}" width="12" height="12" fill="{_colour(index)}"/>')
        parts.append(_text(x + 18, y + 10, name, "start"))
    return parts


def _heat(value: float, least: float, most: float, middle: float | None) -> str:
    white = least if middle is None else middle
    share = (value - white) / max(abs(most - white), abs(least - white), 1e-12)
    pale = round(255 - 155 * min(1.0, abs(share)))
    return f"rgb({pale},{pale},255)" if share >= 0 else f"rgb(255,{pale},{pale})"


def _colour(index: int) -> str:
    return _COLOURS[index % len(_COLOURS)]


def _number(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def _stroke(x: float, y: float, x2: float, y2: float, colour: str, dashed: bool = False) -> str:
    dashes = ' stroke-dasharray="5 4"' if dashed else ""
    return (
        f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"{dashes}/>'
    )


def _text(x: float, y: float, text: str, anchor: str = "middle") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _document(title: str, parts: Sequence[str]) -> str:
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
            f'width="{_WIDTH}" height="{_HEIGHT}" font-family="sans-serif" font-size="12">',
            f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#fff"/>',
            f'<text x="{_LEFT}" y="26" font-size="15">{escape(title)}</text>',
            *parts,
            "</svg>\n",
        ]
    )
