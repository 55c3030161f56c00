"""Plots: places are proportional to values, and the text is well-formed XML."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest

from models.plot import Bar, Bars, Line, bar_plot, heat_map, line_plot

SVG = "{http://www.w3.org/2000/svg}"


def parse(text: str) -> ElementTree.Element:
    return ElementTree.fromstring(text)


def texts(root: ElementTree.Element) -> list[str]:
    return [element.text or "" for element in root.iter(f"{SVG}text")]


def test_a_line_goes_through_its_points() -> None:
    root = parse(line_plot("a < b", "width", "ms", [Line("up", [(0, 0), (5, 10), (10, 20)])]))
    (line,) = root.iter(f"{SVG}polyline")
    places = [tuple(map(float, pair.split(","))) for pair in line.attrib["points"].split()]
    (x0, y0), (x1, y1), (x2, y2) = places
    assert (x1 - x0, y1 - y0) == (pytest.approx(x2 - x1), pytest.approx(y2 - y1))
    assert x0 < x2
    assert y0 > y2
    assert len(list(root.iter(f"{SVG}circle"))) == 3
    assert {"a < b", "width", "ms", "up", "20"} <= set(texts(root))


def test_bars_are_as_high_as_their_values_with_whiskers() -> None:
    series = [Bars("one", [Bar(1.0), Bar(2.0, 1.5, 2.5)]), Bars("two", [None, Bar(0.5)])]
    root = parse(bar_plot("ratios", "ratio", ["a", "b"], series, reference=1.0))
    heights = [
        float(rect.attrib["height"])
        for rect in root.iter(f"{SVG}rect")
        if rect.attrib.get("height") not in ("12", "440")
    ]
    one, two, half = heights
    assert (two, half) == (pytest.approx(2 * one, abs=0.2), pytest.approx(one / 2, abs=0.2))
    whiskers = [line for line in root.iter(f"{SVG}line") if line.attrib["stroke"] == "#000"]
    assert len(whiskers) == 4  # a whisker with two ends, and the reference


def test_a_heat_map_is_white_in_the_middle_and_blank_where_nothing_is_known() -> None:
    root = parse(
        heat_map("map", "x", "y", ["1", "2"], ["a", "b"], [[1.0, 2.0], [0.0, None]], middle=1.0)
    )
    fills = [rect.attrib["fill"] for rect in root.iter(f"{SVG}rect")][1:]
    assert fills == ["rgb(255,255,255)", "rgb(100,100,255)", "rgb(255,100,100)", "none"]


@pytest.mark.parametrize("lines", [[], [Line("none", [])], [Line("one", [(3.0, 0.0)])]])
def test_little_to_show_is_still_a_plot(lines: list[Line]) -> None:
    parse(line_plot("t", "x", "y", lines))
