"""What a changing load did to the width of rounds, to throughput and to decoding alone."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from bench.run.schema import Absent, Metric, Quantity
from bench.serve.decoding import cached_of, tpot_of, tpot_ratio
from bench.serve.figures import INTERRUPTED, PER_ROUND, RATE, ratio_to
from bench.serve.phases import Phase
from bench.serve.plan import Plan, Policy
from bench.serve.schema import PhaseCell

LEAST_CHANGE = 0.5
"""Tokens: widths that differ by less have not changed."""

SMOOTHED = 4
"""Rounds over which a width is averaged before it counts as come halfway."""

_FIRST = Absent("unsupported", "there is no phase before the first one")
_SAME = Absent("missing", f"the width settled within {LEAST_CHANGE} tokens of where it was")
_NEVER = Absent("missing", "it did not come there within the phase")

Run = Sequence[Phase]
"""All phases of one repeat."""


def phase_cells(
    plan: Plan, policy: Policy, runs: Sequence[Run], plain: Sequence[Run], absent: Absent | None
) -> list[PhaseCell]:
    """A cell for each phase, repeats together; `plain` are the repeats of plain decoding."""
    widths = [_mean_widths([run[at].widths for run in runs]) for at in range(len(plan.phases))]
    return [
        _cell(plan, policy, at, [run[at] for run in runs], _at(runs, plain, at), widths, absent)
        for at in range(len(plan.phases))
    ]


def _at(runs: Sequence[Run], plain: Sequence[Run], at: int) -> list[Phase] | None:
    return None if runs is plain else [run[at] for run in plain]


def _cell(
    plan: Plan,
    policy: Policy,
    at: int,
    own: Sequence[Phase],
    off: Sequence[Phase] | None,
    widths: Sequence[tuple[float, ...]],
    absent: Absent | None,
) -> PhaseCell:
    absent = absent or (None if own else INTERRUPTED)
    ratio, interval = ratio_to(_rates(own), None if off is None else _rates(off), plan.seed)
    decoded = [one.decoded for one in own]
    plain = None if off is None else [one.decoded for one in off]
    decoding, decoding_interval = tpot_ratio(decoded, plain, plan.seed)
    tokens, seconds = sum(one.tokens for one in own), sum(one.seconds for one in own)
    return PhaseCell(
        phase=at + 1,
        streams=plan.phases[at],
        policy=policy.label,
        throughput=absent or Quantity(tokens / seconds, RATE),
        ratio=absent or ratio,
        interval=absent or interval,
        tpot=absent or tpot_of(decoded),
        tpot_ratio=absent or decoding,
        tpot_interval=absent or decoding_interval,
        cached=absent or cached_of(decoded),
        rounds=absent or Quantity(fmean(len(one.widths) for one in own), "rounds"),
        settled=absent or _settled(widths[at]),
        rounds_until=absent or (rounds_until(widths[at - 1], widths[at]) if at else _FIRST),
        widths=widths[at],
    )


def rounds_until(before: Sequence[float], now: Sequence[float]) -> Metric:
    """Rounds of a phase until its width has come halfway from where it had settled before to
    where it settles now."""
    start, goal = _settled(before), _settled(now)
    if isinstance(start, Absent) or isinstance(goal, Absent):
        return start if isinstance(start, Absent) else goal
    change = goal.value - start.value
    if abs(change) < LEAST_CHANGE:
        return _SAME
    for at in range(len(now) - SMOOTHED + 1):
        if (fmean(now[at : at + SMOOTHED]) - start.value) / change >= 0.5:
            return Quantity(at, "rounds")
    return _NEVER


def _settled(widths: Sequence[float]) -> Metric:
    """The mean of the later half."""
    later = widths[len(widths) // 2 :]
    return Quantity(fmean(later), PER_ROUND) if later else Absent("missing", "no round was run")


def _mean_widths(runs: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """By round, as far as every repeat has rounds."""
    return tuple(fmean(each) for each in zip(*runs, strict=False))


def _rates(phases: Sequence[Phase]) -> list[float]:
    return [phase.tokens / phase.seconds for phase in phases]
