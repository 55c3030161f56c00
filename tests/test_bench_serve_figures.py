"""Goodput, outcomes and ratios of windows, by hand."""

from __future__ import annotations

import pytest

from bench.run.schema import Absent, Interval, Quantity
from bench.serve.figures import INTERRUPTED, cell_of
from bench.serve.plan import Targets
from bench.serve.requests import Request
from tests.bench_serve_support import FIXED4, OFF_POLICY, TWO_STREAMS, answered, window

TARGETS = Targets(ttft_ms=100.0, tpot_ms=10.0)
REFUSED = Request(0.0, 0.1, "refused", "queue_full: the queue is full.")
FAILED = Request(0.0, 0.1, "failed", "server_error: broken")


@pytest.mark.parametrize(
    ("request_", "good"),
    [
        (answered(100.0, 10.0), True),
        (answered(101.0, 5.0), False),
        (answered(50.0, 10.1), False),
        (answered(50.0, None), True),
        (REFUSED, False),
        (FAILED, False),
    ],
)
def test_good_is_what_meets_both_targets(request_: Request, good: bool) -> None:
    assert request_.good(TARGETS) is good


def test_a_cell_counts_every_outcome_and_divides_by_all_the_time() -> None:
    own = [
        window(2.0, answered(50.0, 5.0), answered(150.0, 5.0), REFUSED),
        window(3.0, answered(60.0, 6.0), FAILED),
    ]
    plain = [window(4.0, answered(50.0, 9.0)), window(6.0, answered(50.0, 9.0))]
    cell = cell_of(TWO_STREAMS, FIXED4, own, plain, TARGETS, 0)
    assert (cell.load, cell.policy, cell.windows) == ("2 streams", "fixed:4", 2)
    assert (cell.answered, cell.refused, cell.failed) == (3, 1, 1)
    assert cell.goodput == Quantity(2 / 5, "requests/s")
    assert cell.good == Quantity(2 / 5, "share")
    assert cell.throughput == Quantity(30 / 5, "tokens/s")
    assert cell.ttft["p50"] == Quantity(60.0, "ms")
    assert cell.cached == Quantity(15 / 60, "share")
    assert cell.verified == Quantity(24 / 12, "tokens/round")
    assert cell.tau == Quantity(27 / 12, "tokens/round")
    own_rate, plain_rate = (20 / 2 + 10 / 3) / 2, (10 / 4 + 10 / 6) / 2
    assert isinstance(cell.ratio, Quantity)
    assert cell.ratio.value == pytest.approx(own_rate / plain_rate)
    assert isinstance(cell.interval, Interval)
    assert cell.interval.low <= cell.ratio.value <= cell.interval.high


def test_plain_decoding_is_not_compared_with_itself() -> None:
    plain = [window(4.0, answered(50.0, 9.0))]
    cell = cell_of(TWO_STREAMS, OFF_POLICY, plain, plain, TARGETS, 0)
    assert isinstance(cell.ratio, Absent)
    assert cell.ratio.absent == "not_comparable"
    assert isinstance(cell.throughput, Quantity)


def test_what_was_not_reached_and_what_nobody_answered_have_words() -> None:
    plain = [window(4.0, answered(50.0, 9.0))]
    missing = cell_of(TWO_STREAMS, FIXED4, [], plain, TARGETS, 0)
    assert missing.throughput == missing.ttft["p99"] == missing.goodput == INTERRUPTED
    failed = cell_of(TWO_STREAMS, FIXED4, [window(1.0, FAILED)], plain, TARGETS, 0)
    assert failed.throughput == Absent("failed", "server_error: broken")
    assert failed.failed == 1
    gone = Absent("unsupported", "unknown drafter")
    assert cell_of(TWO_STREAMS, FIXED4, [], plain, TARGETS, 0, gone).ratio == gone


def test_one_window_has_no_interval() -> None:
    plain = [window(4.0, answered(50.0, 9.0))]
    cell = cell_of(TWO_STREAMS, FIXED4, [window(2.0, answered(50.0, 5.0))], plain, TARGETS, 0)
    assert cell.ratio == Quantity(2.0, "of off")
    assert isinstance(cell.interval, Absent)
    assert cell.interval.absent == "missing"
