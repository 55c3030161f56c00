"""Metrics of a condition, and its comparison with the baseline."""

from __future__ import annotations

import pytest

from bench.run.against import against
from bench.run.metrics import metrics_of
from bench.run.observed import Wave
from bench.run.plan import BASELINE
from bench.run.schema import Absent, Interval, Quantity
from tests.bench_run_support import (
    DRAFTED,
    NGRAM4,
    PLAIN,
    TYPICAL4,
    answer,
    outcome,
    plain_outcome,
)


def drafted(question: str, tpot_ms: float | None, **changes: object) -> Wave:
    return Wave(0.5, (answer(question, tpot_ms, **{"timings": DRAFTED, **changes}),))


def test_times_and_lengths_are_per_round() -> None:
    metrics = metrics_of(outcome(NGRAM4, drafted("1", 5.0), drafted("2", 7.0)), None)
    assert metrics.draft_time == Quantity(0.5, "ms/round")
    assert metrics.verify_time == Quantity(10.0, "ms/round")
    # nine tokens of 5 ms, less 42 ms that were drafting and verifying, over four rounds
    assert metrics.overhead_time == Quantity(0.75, "ms/round")
    assert metrics.tau == Quantity(2.25, "tokens/round")
    assert metrics.accepted_length == Quantity(1.25, "tokens/round")
    assert metrics.alpha == Quantity(0.625, "share")
    assert metrics.survival == (Quantity(0.75, "share"), Quantity(0.5, "share"))
    assert metrics.tpot == Quantity(6.0, "ms")
    assert metrics.throughput == Quantity(20.0, "tokens/s")


def test_time_per_token_is_the_median_of_repeats_then_the_mean_of_prompts() -> None:
    waves = [drafted("1", time, repeat=n) for n, time in enumerate((5.0, 50.0, 6.0))]
    metrics = metrics_of(outcome(NGRAM4, *waves, drafted("2", 10.0)), None)
    assert metrics.tpot == Quantity(8.0, "ms")


def test_arrivals_are_pooled_over_answers() -> None:
    waves = (drafted("1", 5.0, gaps_ms=(1.0, 2.0)), drafted("2", 5.0, gaps_ms=(3.0,)))
    gaps = metrics_of(outcome(NGRAM4, *waves), None).inter_token_latency
    assert gaps["p50"] == Quantity(2.0, "ms")
    assert isinstance(gaps["p99"], Quantity)
    assert gaps["p99"].value == pytest.approx(2.98)


def test_what_there_is_not_is_said_and_never_zero() -> None:
    off = metrics_of(plain_outcome(answer("1", None, ttft_ms=None, gaps_ms=())), None)
    for metric in (off.draft_time, off.accepted_length, off.alpha, off.survival):
        assert metric == Absent("unsupported", "speculation is off")
    for metric in (off.tpot, off.overhead_time, off.ttft["p50"], off.inter_token_latency["p99"]):
        assert isinstance(metric, Absent)
        assert metric.absent == "missing"
    never = metrics_of(outcome(NGRAM4, Wave(1.0, (answer("1", 9.0),))), None)
    assert never.alpha == Absent("missing", "no draft was verified")
    assert never.draft_time == Quantity(0.0, "ms/round"), "measured, and nothing was spent"


def test_a_condition_that_failed_has_no_figure_at_all() -> None:
    broken = outcome(NGRAM4, drafted("1", 5.0))
    broken.absent = Absent("failed", "the kernel failed")
    metrics = metrics_of(broken, None)
    assert metrics.tpot == metrics.survival == metrics.ttft["p90"] == broken.absent
    beside = against(broken, plain_outcome(answer("1", 10.0)), None, 0)
    assert beside.ratio == beside.interval == beside.identical == broken.absent
    assert beside.tpot == Quantity(10.0, "ms"), "the baseline did not fail"


def test_a_category_of_a_mixed_wave_has_no_throughput_of_its_own() -> None:
    mixed = Wave(2.0, (answer("1", 9.0), answer("2", 9.0, category="edit")))
    seen = outcome(BASELINE, mixed, streams=2)
    assert metrics_of(seen, None).throughput == Quantity(10.0, "tokens/s")
    alone = metrics_of(seen, "edit").throughput
    assert isinstance(alone, Absent)
    assert alone.absent == "not_comparable"


def test_the_ratio_is_over_prompts_timed_in_both() -> None:
    own = outcome(NGRAM4, drafted("1", 4.0), drafted("2", 6.0), drafted("3", None))
    off = plain_outcome(answer("1", 10.0), answer("2", 10.0), answer("3", 10.0))
    beside = against(own, off, None, 0)
    assert beside.ratio == Quantity(0.5, "of off")
    assert isinstance(beside.interval, Interval)
    assert (beside.interval.low, beside.interval.high) == pytest.approx((0.4, 0.6))
    assert beside.interval.prompts == 2
    assert beside.identical == Quantity(1.0, "share")
    assert beside.throughput == Quantity(10.0, "tokens/s")


def test_lossy_answers_of_another_length_are_not_compared() -> None:
    lossy = DRAFTED | {"lossless": False}
    off = plain_outcome(answer("1", 10.0), answer("2", 10.0))
    shorter = drafted("1", 4.0, timings=lossy, ids=(1, 2, 3))
    beside = against(outcome(TYPICAL4, shorter, drafted("2", 4.0, timings=lossy)), off, None, 0)
    assert isinstance(beside.ratio, Absent)
    assert beside.ratio.absent == "not_comparable"
    assert "1 of 2 answers" in beside.ratio.why
    assert beside.ratio.kept == Quantity(0.4, "of off")
    assert beside.identical == Quantity(0.5, "share")
    same = outcome(TYPICAL4, *(drafted(q, 4.0, timings=lossy) for q in "12"))
    assert against(same, off, None, 0).ratio == Quantity(0.4, "of off")


def test_the_baseline_is_not_compared_with_itself_nor_with_nothing() -> None:
    off = plain_outcome(answer("1", 10.0))
    itself = against(off, off, None, 0).ratio
    nothing = against(outcome(NGRAM4, drafted("1", 5.0)), None, None, 0).ratio
    assert isinstance(itself, Absent)
    assert itself.absent == "not_comparable"
    assert isinstance(nothing, Absent)
    assert nothing.absent == "missing"
    one = against(outcome(NGRAM4, drafted("1", 5.0)), off, None, 0)
    assert one.ratio == Quantity(0.5, "of off")
    assert one.interval == Absent("missing", "one prompt has no spread")


def test_overhead_needs_a_timed_answer() -> None:
    assert answer("1", 10.0).overhead_ms == pytest.approx(9.0)
    assert answer("1", None).overhead_ms is None
    assert answer("1", 10.0, timings=PLAIN | {"tpot_ms": None}).overhead_ms is None
