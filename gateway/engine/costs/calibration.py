"""Measures what runs of the target cost, by width, by rows and by what is cached."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Protocol

from gateway.engine.costs.coefficients import Coefficients, Point, fit, relative_errors
from gateway.engine.costs.shape import RunShape
from models.rows import Row, RowResult
from models.slots import Slot

WIDTHS = (2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32, 64, 128)
SHORT_PAST = 32
LONG_PAST = 2048

_LONG_WIDTHS = (2, 16)
_ROWS, _ROW_WIDTHS = (2, 4, 8), (2, 8)
_LEAST_REPEATS, _MOST_REPEATS = 2, 5
_BUDGET_S = 1.8
_CHECK_WIDTHS = (2, 16)
_CHECK_REPEATS = 3
_FILL = 0.01
"""Pages that nothing was written to are one page of zeros, which is always in the cache."""

Clock = Callable[[], float]
"""Seconds."""


Rows = tuple[tuple[int, int], ...]
"""Of every row of a run the cached tokens and its own."""


class Runner(Protocol):
    """What calibration needs of a target."""

    @property
    def most_rows(self) -> int: ...

    def run(self, rows: Sequence[Row]) -> list[RowResult]: ...


@dataclass(frozen=True, slots=True)
class Calibration:
    """Measured runs: `points` for the fit, `checks` to see how well it predicts others."""

    points: tuple[Point, ...]
    checks: tuple[Point, ...] = ()

    def coefficients(self) -> Coefficients:
        return fit(self.points)

    def errors(self) -> list[float]:
        """(predicted - measured) / measured of the checks, which were not fitted."""
        return relative_errors(self.coefficients(), self.checks)

    def scaled(self, factor: float) -> Calibration:
        """On a machine that takes `factor` times as long."""
        return Calibration(_scaled(self.points, factor), _scaled(self.checks, factor))


def calibrate(
    target: Runner, slots: Sequence[Slot], clock: Clock = time.perf_counter
) -> Calibration:
    """Measure everything, within some two seconds where a run takes milliseconds.

    `slots` hold nothing, and hold nothing afterwards.
    """
    short, long = pasts(slots)
    most = min(target.most_rows, len(slots))
    widths = [width for width in WIDTHS if short + width <= slots[0].context]
    points: list[Rows] = [((short, width),) for width in widths]
    points += [((long, width),) for width in _LONG_WIDTHS if short < long]
    points += [((short, width),) * rows for rows in _ROWS if rows <= most for width in _ROW_WIDTHS]
    # What is in between predicts best, and what is far from all of it worst.
    checks: list[Rows] = [((short, 9),), (((short + long) // 2, 8),)]
    checks += [((short, 5),) * 2, ((short, 12), (short, 3))] if most > 1 else []
    times = measure(target, slots, [*points, *checks], clock)
    return Calibration(tuple(times[: len(points)]), tuple(times[len(points) :]))


def check_points(
    target: Runner, slots: Sequence[Slot], clock: Clock = time.perf_counter
) -> list[Point]:
    """Two points of the curve, quickly."""
    short, _ = pasts(slots)
    widths = [width for width in _CHECK_WIDTHS if short + width <= slots[0].context]
    shapes: list[Rows] = [((short, width),) for width in widths]
    return measure(target, slots, shapes, clock, least=_CHECK_REPEATS, most=_CHECK_REPEATS)


def pasts(slots: Sequence[Slot]) -> tuple[int, int]:
    """Cached tokens of a short text and of a long one."""
    context = slots[0].context
    return min(SHORT_PAST, context // 4), min(LONG_PAST, context // 2)


def measure(
    target: Runner,
    slots: Sequence[Slot],
    shapes: Sequence[Rows],
    clock: Clock,
    *,
    least: int = _LEAST_REPEATS,
    most: int = _MOST_REPEATS,
) -> list[Point]:
    """Milliseconds of runs of (cached, tokens) a row: of each the least of some rounds over all.

    After `least` rounds another one begins while there is time. Noise only ever adds.
    """
    best = [float("inf")] * len(shapes)
    end = clock() + _BUDGET_S
    for index in range(max(len(rows) for rows in shapes)):
        _fill(slots[index], max(rows[index][0] for rows in shapes if index < len(rows)))
    for repeat in range(most):
        if repeat >= least and clock() >= end:
            break
        for index, rows in enumerate(shapes):
            best[index] = min(best[index], _timed(target, slots, rows, clock))
    return [(RunShape.of(rows), ms) for rows, ms in zip(shapes, best, strict=True)]


def _timed(target: Runner, slots: Sequence[Slot], rows: Rows, clock: Clock) -> float:
    with ExitStack() as stack:
        packed = []
        for slot, (past, tokens) in zip(slots, rows, strict=False):
            slot.commit((0,) * past)
            stack.callback(slot.truncate, 0)
            packed.append(Row(slot, (0,) * tokens, logits=tokens))
        started = clock()
        target.run(packed)
        return (clock() - started) * 1e3


def _fill(slot: Slot, length: int) -> None:
    """Have host memory there for so many tokens, which the slot does not hold."""
    for buffer in (each for pair in slot.buffers for each in pair):
        if buffer.device_name() == "cpu":
            buffer.numpy()[:, :, :length] = _FILL


def _scaled(points: Sequence[Point], factor: float) -> tuple[Point, ...]:
    return tuple((shape, ms * factor) for shape, ms in points)
