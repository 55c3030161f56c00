"""A condition against the baseline: the same prompts without speculation, paired."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from bench.run.metrics import SHARE, metrics_of, tpot_by_prompt
from bench.run.observed import Observed, Outcome
from bench.run.schema import Absent, BaselineGroup, Interval, Metric, Quantity
from bench.run.statistics import CONFIDENCE, ratio_interval, ratio_of_means

RATIO = "of off"

_NOT_MEASURED = Absent("missing", "speculation off was not measured (--no-baseline)")
_ITSELF = Absent("not_comparable", "this is the baseline")
_NO_PAIRS = Absent("missing", "no prompt was timed in both")
_ONE_PROMPT = Absent("missing", "one prompt has no spread")


def against(
    outcome: Outcome, baseline: Outcome | None, category: str | None, seed: int
) -> BaselineGroup:
    """`baseline` has the same sampling and concurrency; None where it was not measured."""
    if baseline is None:
        return BaselineGroup(*[_NOT_MEASURED] * 5)
    plain = metrics_of(baseline, category)
    absent = _ITSELF if outcome is baseline else outcome.absent
    if absent is not None:
        return BaselineGroup(plain.tpot, absent, absent, absent, plain.throughput)
    own, off = outcome.answers(category), baseline.answers(category)
    ratio, interval = _ratio(own, off, seed)
    return BaselineGroup(plain.tpot, ratio, interval, _identical(own, off), plain.throughput)


def _ratio(
    own: Sequence[Observed], off: Sequence[Observed], seed: int
) -> tuple[Metric, Interval | Absent]:
    times, plain = tpot_by_prompt(own), tpot_by_prompt(off)
    pairs = [(times[prompt], plain[prompt]) for prompt in times if prompt in plain]
    if not pairs:
        return _NO_PAIRS, _NO_PAIRS
    ratio = Quantity(ratio_of_means(pairs), RATIO)
    other = _other_lengths(own, off)
    if other:
        why = f"a lossy rule gave {other} of {len(own)} answers another length than off's"
        return Absent("not_comparable", why, ratio), Absent("not_comparable", why)
    if len(pairs) == 1:
        return ratio, _ONE_PROMPT
    low, high = ratio_interval(pairs, seed)
    return ratio, Interval(low, high, RATIO, CONFIDENCE, len(pairs))


def _other_lengths(own: Sequence[Observed], off: Sequence[Observed]) -> int:
    """Lossy answers that are longer or shorter than the baseline's."""
    lengths = {(one.question, one.repeat): len(one.ids) for one in off}
    lossy = [one for one in own if not one.timings["lossless"]]
    return sum(len(one.ids) != lengths[one.question, one.repeat] for one in lossy)


def _identical(own: Sequence[Observed], off: Sequence[Observed]) -> Metric:
    ids = {(one.question, one.repeat): one.ids for one in off}
    return Quantity(fmean(one.ids == ids[one.question, one.repeat] for one in own), SHARE)
