"""Closed and open loop against a scripted engine; arrivals of a seed."""

from __future__ import annotations

from itertools import pairwise
from statistics import fmean

import pytest

from bench.serve.plan import Load
from bench.serve.windows import arrivals, chosen, window_of
from tests.bench_serve_support import FIXED4, QUESTIONS, TWO_STREAMS, plan
from tests.fake_engine import FakeEngine
from tests.http_serving import serving

WIRE = FIXED4.wire(0.0)


def test_prompts_are_shuffled_by_seed_and_come_again_in_turn() -> None:
    asked = chosen(QUESTIONS, 12, 0)
    assert asked[:5] != QUESTIONS
    assert sorted(asked[:5], key=lambda question: question.id) == QUESTIONS
    assert asked[5:10] == asked[:5]
    assert chosen(QUESTIONS, 12, 0) == asked != chosen(QUESTIONS, 12, 1)


def test_arrivals_are_a_poisson_process_of_the_seed() -> None:
    times = arrivals(50.0, 20.0, 0)
    assert times == sorted(times) == arrivals(50.0, 20.0, 0) != arrivals(50.0, 20.0, 1)
    assert times[0] > 0
    assert times[-1] < 20.0
    assert len(times) == pytest.approx(1000, rel=0.1)
    gaps = [now - then for then, now in pairwise(times)]
    deviation = fmean((gap - fmean(gaps)) ** 2 for gap in gaps) ** 0.5
    assert deviation == pytest.approx(fmean(gaps), rel=0.15), "as exponential gaps have it"
    assert arrivals(0.001, 1.0, 0) == [0.0], "a window has a request"


async def test_closed_streams_are_never_idle() -> None:
    engine = FakeEngine("twelve chars", pace=0.002)
    async with serving(engine) as served:
        seen = await window_of(served.url, plan(), TWO_STREAMS, QUESTIONS, WIRE, 0)
    assert engine.most_running == 2
    assert [request.ending for request in seen.requests] == ["answered"] * 6
    assert seen.tokens == 6 * 12
    assert seen.seconds >= 3 * 12 * 0.002
    for request in seen.requests:
        assert request.ttft_ms is not None
        assert request.tpot_ms is not None
        assert request.tpot_ms >= 2.0
    assert engine.requests[0].speculation.length == 4


async def test_open_arrivals_do_not_wait_and_count_from_when_they_were_due() -> None:
    engine = FakeEngine("twelve chars", pace=0.02)
    async with serving(engine) as served:
        load = Load(rate=20.0)
        seen = await window_of(served.url, plan(seconds=1.0), load, QUESTIONS, WIRE, 0)
    expected = arrivals(20.0, 1.0, 0)
    assert len(seen.requests) == len(expected)
    assert engine.most_running > 2, "answers take five times the time between arrivals"
    first = min(request.due for request in seen.requests)
    dues = sorted(request.due - first for request in seen.requests)
    assert dues == pytest.approx([at - expected[0] for at in expected], abs=1e-6)


async def test_a_full_queue_is_an_outcome_and_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.serve.windows.RETRY_SECONDS", 0.0)
    engine = FakeEngine("twelve chars", pace=0.005, capacity=1)
    async with serving(engine) as served:
        seen = await window_of(served.url, plan(), TWO_STREAMS, QUESTIONS, WIRE, 0)
    endings = [request.ending for request in seen.requests]
    assert len(endings) == 6
    assert set(endings) == {"answered", "refused"}
    refused = next(request for request in seen.requests if request.ending == "refused")
    assert refused.why.startswith("queue_full")
    assert (refused.tokens, refused.ttft_ms) == (0, None)


async def test_failures_end_a_stream_and_are_told() -> None:
    async with serving(FakeEngine(failure=RuntimeError("broken"))) as served:
        seen = await window_of(served.url, plan(), TWO_STREAMS, QUESTIONS, WIRE, 0)
    assert [request.ending for request in seen.requests] == ["failed"] * 2
    gone = await window_of("http://127.0.0.1:9", plan(), TWO_STREAMS, QUESTIONS, WIRE, 0)
    assert all("cannot connect" in request.why for request in gone.requests)
