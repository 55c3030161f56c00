"""Figures of the grid: what was measured of each point, what the formula and the model say."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

from bench.run.schema import Absent, Interval, Metric, Quantity
from bench.run.statistics import CONFIDENCE, ratio_interval, ratio_of_means
from bench.synthetic.driving import Kept, Pair
from bench.synthetic.plan import Plan, Point
from bench.synthetic.schema import Cell
from gateway.engine.costs.break_even import break_even

MS, MS_TOKEN, TIMES, TOKENS, SHARE = "ms/round", "ms/token", "x", "tokens/round", "share"
FULL = 0.95
"""Drafts shorter than this share of what was asked for are other drafts."""

_UNSEEN = Absent("missing", "the run was interrupted before this point")


def cells_of(plan: Plan, kept: Kept) -> tuple[Cell, ...]:
    return tuple(
        _cell(plan, kept, streams, Point(length, alpha))
        for streams in plan.concurrency
        for length in plan.lengths
        for alpha in plan.alphas
    )


def _cell(plan: Plan, kept: Kept, streams: int, point: Point) -> Cell:
    pairs = kept.pairs.get((streams, point), [])
    absent = kept.absent.get((streams, point)) or (None if pairs else _UNSEEN)
    figures = _absent(absent) if absent is not None else _measured(pairs, point, plan.seed)
    return Cell(
        concurrency=streams,
        length=point.length,
        alpha=point.alpha,
        tau_formula=Quantity(point.tau, TOKENS),
        **figures,
    )


def _absent(why: Absent) -> Mapping[str, Any]:
    fields = Cell.__dataclass_fields__
    return {name: why for name in fields if name not in _GIVEN}


_GIVEN = ("concurrency", "length", "alpha", "tau_formula")


def _measured(pairs: Sequence[Pair], point: Point, seed: int) -> Mapping[str, Any]:
    """Times are means over repeats; what is divided is divided afterwards."""
    proposed = _mean(pairs, lambda pair: pair.turn.steady.proposed)
    token = _mean(pairs, lambda pair: pair.turn.steady.token_ms)
    round_ms = _mean(pairs, lambda pair: pair.turn.steady.round_ms)
    off_ms = _mean(pairs, lambda pair: pair.plain.steady.token_ms)
    predicted = _mean(pairs, lambda pair: pair.turn.predicted_ms)
    off_predicted = _mean(pairs, lambda pair: pair.plain.predicted_ms)
    speeds = [(pair.plain.steady.token_ms, pair.turn.steady.token_ms) for pair in pairs]
    figures: dict[str, Any] = {
        "proposed": Quantity(proposed, TOKENS),
        "tau": Quantity(round_ms / token, TOKENS),
        "token": Quantity(token, MS_TOKEN),
        "off_token": Quantity(off_ms, MS_TOKEN),
        "token_predicted": Quantity(predicted / point.tau, MS_TOKEN),
        "round": Quantity(round_ms, MS),
        "round_predicted": Quantity(predicted, MS),
        "off_predicted": Quantity(off_predicted, MS),
        "off_error": Quantity(off_predicted / off_ms - 1, SHARE),
        "speedup": Quantity(ratio_of_means(speeds), TIMES),
        "interval": _interval(speeds, seed),
        "speedup_formula": Quantity(point.tau * off_ms / round_ms, TIMES),
        "speedup_predicted": Quantity(point.tau * off_predicted / predicted, TIMES),
        "round_error": Quantity(predicted / round_ms - 1, SHARE),
        "token_error": Quantity(predicted / point.tau / token - 1, SHARE),
        "break_even": _break_even(round_ms / off_ms, point.length),
    }
    if proposed >= FULL * point.length:
        return figures
    why = f"drafts had {proposed:.1f} tokens on average, not {point.length}"
    compared = ("speedup", "speedup_formula", "speedup_predicted", "token_predicted")
    errors = ("round_predicted", "round_error", "token_error", "break_even")
    kept = {name: _not_compared(figures[name], why) for name in (*compared, *errors)}
    return {**figures, **kept, "interval": Absent("not_comparable", why)}


def _not_compared(figure: Metric, why: str) -> Absent:
    return Absent("not_comparable", why, figure if isinstance(figure, Quantity) else None)


def _mean(pairs: Sequence[Pair], of: Callable[[Pair], float]) -> float:
    return fmean(of(pair) for pair in pairs)


def _interval(speeds: Sequence[tuple[float, float]], seed: int) -> Interval | Absent:
    if len(speeds) == 1:
        return Absent("missing", "one repeat has no spread")
    low, high = ratio_interval(speeds, seed)
    return Interval(low, high, TIMES, CONFIDENCE, len(speeds))


def _break_even(ratio: float, length: int) -> Metric:
    needed = break_even(ratio, length)
    if needed is None:
        return Absent("unsupported", "not even drafts that are always right would pay")
    return Quantity(needed, SHARE)
