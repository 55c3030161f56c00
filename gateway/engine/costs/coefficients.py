"""A run's time as a function of its shape, and how its coefficients are found."""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gateway.engine.costs.shape import RunShape
from models.rows import LEAST_WIDTH

Point = tuple[RunShape, float]
"""A shape and the milliseconds that a run of it took."""


@dataclass(frozen=True, slots=True)
class Coefficients:
    """T = curve(tokens) + per_row * (rows - 1) + per_past * past + per_work * work.

    `curve` are (tokens, milliseconds), rising in both, with straight lines between them. All in
    milliseconds.
    """

    curve: tuple[tuple[int, float], ...]
    per_row: float = 0.0
    per_past: float = 0.0
    per_work: float = 0.0

    @classmethod
    def by_width(cls, measured: Mapping[int, float]) -> Coefficients:
        """Of milliseconds by tokens alone."""
        return cls(_rising(sorted(measured.items())))

    def width(self, tokens: int) -> float:
        """The curve's share. A lone token is padded to two; beyond the last point it is linear."""
        curve = self.curve
        if len(curve) == 1 or tokens <= curve[0][0]:
            return curve[0][1]
        at = bisect.bisect_left(curve, tokens, key=lambda point: point[0])
        at = min(at, len(curve) - 1)
        (low, low_ms), (high, high_ms) = curve[at - 1], curve[at]
        return low_ms + (high_ms - low_ms) / (high - low) * (tokens - low)

    def rest(self, shape: RunShape) -> float:
        """What all but the curve adds."""
        return (
            self.per_row * (shape.rows - 1)
            + self.per_past * shape.past
            + self.per_work * shape.work
        )

    def predict(self, shape: RunShape) -> float:
        return self.width(shape.tokens) + self.rest(shape)


def fit(points: Sequence[Point]) -> Coefficients:
    """One coefficient after another, none below 0: noise never makes more work look cheaper.

    Runs of one row behind the fewest cached tokens give the curve, runs of one row behind more of
    them what the cache costs, and runs of several rows what a row costs. Where there is little to
    tell the first two apart, half of a run's time is the curve's at least.
    """
    alone = [point for point in points if point[0].rows == 1]
    assert alone, "the curve needs runs of one row"
    least = min(shape.past for shape, _ in alone)
    short = [point for point in alone if point[0].past == least]
    curve = _rising(sorted((max(shape.tokens, LEAST_WIDTH), ms) for shape, ms in short))
    per_past, per_work = _cache(curve, [point for point in alone if point[0].past > least], least)
    lowered = tuple((at, max(ms / 2, ms - least * (per_past + per_work * at))) for at, ms in curve)
    known = Coefficients(_rising(lowered), 0.0, per_past, per_work)
    return Coefficients(
        known.curve,
        _per_row(known, [each for each in points if each[0].rows > 1]),
        per_past,
        per_work,
    )


def relative_errors(coefficients: Coefficients, points: Sequence[Point]) -> list[float]:
    """(predicted - measured) / measured of each."""
    return [coefficients.predict(shape) / ms - 1 for shape, ms in points]


def _rising(points: Sequence[tuple[int, float]]) -> tuple[tuple[int, float], ...]:
    """No point below the one before."""
    risen: list[tuple[int, float]] = []
    for tokens, ms in points:
        risen.append((tokens, max(ms, risen[-1][1]) if risen else ms))
    return tuple(risen)


def _cache(
    curve: tuple[tuple[int, float], ...], points: Sequence[Point], least: int
) -> tuple[float, float]:
    """Milliseconds of a cached token, and of a cached token for each token of the row.

    Least squares in both; where one would be below 0, in the other alone.
    """
    known = Coefficients(curve)
    rows = [
        (shape.past - least, (shape.past - least) * shape.tokens, ms - known.width(shape.tokens))
        for shape, ms in points
    ]
    aa, ab, bb = (
        sum(a * a for a, _, _ in rows),
        sum(a * b for a, b, _ in rows),
        sum(b * b for _, b, _ in rows),
    )
    ay, by = sum(a * y for a, _, y in rows), sum(b * y for _, b, y in rows)
    determinant = aa * bb - ab * ab
    if determinant > 0:
        per_past, per_work = (ay * bb - by * ab) / determinant, (by * aa - ay * ab) / determinant
        if per_past >= 0 and per_work >= 0:
            return per_past, per_work
        if per_past < 0:
            return 0.0, max(0.0, by / bb)
    return (max(0.0, ay / aa), 0.0) if aa else (0.0, 0.0)


def _per_row(known: Coefficients, points: Sequence[Point]) -> float:
    """Least squares over runs of several rows."""
    more = [(shape.rows - 1, ms - known.predict(shape)) for shape, ms in points]
    squares = sum(rows * rows for rows, _ in more)
    return max(0.0, sum(rows * ms for rows, ms in more) / squares) if squares else 0.0
