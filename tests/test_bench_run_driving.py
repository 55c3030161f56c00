"""Waves: which prompts, in which order, and what becomes of a setting that fails."""

from __future__ import annotations

from typing import Any

import pytest

from bench.client import GatewayError
from bench.prompts import Question
from bench.run import driving
from bench.run.driving import Watched, rotated, waves
from bench.run.observed import Wave
from bench.run.plan import BASELINE, Condition
from bench.run.schema import Absent
from tests.bench_run_support import GREEDY, NGRAM4, outcome
from tests.fake_engine import FakeEngine
from tests.http_serving import serving

QUESTIONS = [Question(str(n), "all", (f"say {n}",)) for n in range(9)]


def test_one_stream_answers_one_prompt_at_a_time_in_order() -> None:
    assert list(waves(QUESTIONS, 1, 0)) == [[question] for question in QUESTIONS]


@pytest.mark.parametrize(("streams", "sizes"), [(2, [5, 4]), (4, [9]), (9, [9])])
def test_more_streams_answer_every_prompt_once_in_an_order_of_the_seed(
    streams: int, sizes: list[int]
) -> None:
    parts = list(waves(QUESTIONS, streams, 0))
    assert [len(part) for part in parts] == sizes
    seen = [question for part in parts for question in part]
    assert sorted(seen, key=lambda question: question.id) == QUESTIONS
    assert seen != QUESTIONS
    assert parts == list(waves(QUESTIONS, streams, 0))
    assert parts != list(waves(QUESTIONS, streams, 1))


def test_every_setting_is_first_in_turn() -> None:
    outcomes = [outcome(BASELINE), outcome(NGRAM4), outcome(BASELINE, streams=2)]
    orders = [rotated(outcomes, count) for count in range(3)]
    assert [order[0] for order in orders] == outcomes
    assert all(len(order) == 3 for order in orders)
    assert rotated([], 5) == []


async def test_a_wave_keeps_every_stream_busy_and_times_them_together() -> None:
    engine = FakeEngine("twelve chars", pace=0.002)
    async with serving(engine) as served:
        seen = await Watched(served.url).wave(Condition(NGRAM4, GREEDY, 3), QUESTIONS[:7], 1, 64)
    assert isinstance(seen, Wave)
    assert engine.most_running == 3
    assert sorted(answer.question for answer in seen.answers) == [str(n) for n in range(7)]
    assert seen.tokens == 7 * 12
    assert seen.seconds >= 3 * 12 * 0.002, "three answers behind one another, at least"
    for answer in seen.answers:
        assert len(answer.gaps_ms) == 11
        assert answer.tpot_ms == pytest.approx(sum(answer.gaps_ms) / 11)
        assert answer.repeat == 1
    assert engine.requests[0].speculation.length == 4


async def test_what_the_gateway_refuses_is_unsupported_and_what_breaks_failed() -> None:
    async with serving(FakeEngine(failure=RuntimeError("broken"))) as served:
        seen = await Watched(served.url).wave(Condition(NGRAM4, GREEDY, 1), QUESTIONS[:1], 0, 64)
        assert isinstance(seen, Absent)
        assert seen.absent == "failed"
        with pytest.raises(GatewayError, match="server_error"):
            await Watched(served.url).wave(Condition(BASELINE, GREEDY, 1), QUESTIONS[:1], 0, 64)
    async with serving(FakeEngine(capacity=1)) as served:
        unknown = driving.Condition(NGRAM4, GREEDY, 1)
        watched = Watched(served.url)
        seen = await watched.wave(unknown, [Question("1", "all", ("a",))], 0, 0)
        assert isinstance(seen, Absent)
        assert seen.absent == "unsupported"
        assert "max_output_tokens" in seen.why


async def test_drafts_that_failed_in_a_wave_make_it_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers go on without a drafter that fails: only the status tells."""
    failures = 0

    async def status(_url: str) -> dict[str, Any]:
        drafter = {"name": "eagle3", "failures": failures, "problem": "the kernel failed"}
        return {"drafters": [drafter]}

    monkeypatch.setattr(driving, "status_of", status)
    condition = Condition(NGRAM4, GREEDY, 1)
    async with serving(FakeEngine()) as served:
        watched = Watched(served.url)
        assert isinstance(await watched.wave(condition, QUESTIONS[:1], 0, 64), Wave)
        failures = 2
        seen = await watched.wave(condition, QUESTIONS[:1], 0, 64)
        assert seen == Absent("failed", "eagle3: the kernel failed")
        again = await watched.wave(condition, QUESTIONS[:1], 0, 64)
        assert isinstance(again, Wave), "the same failures are counted once"
