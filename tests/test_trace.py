"""What is known of a request while it runs, and its access line."""

from __future__ import annotations

import asyncio
import logging

import pytest

from gateway.engine.requests import Delta, Finished, GenerationRequest, Speculation, Usage
from gateway.trace import CURRENT, LEFT, Progress, Trace, Traces, request_id
from tests.fake_engine import timings

REQUEST = GenerationRequest((1, 2, 3), speculation=Speculation(drafter="ngram+eagle3"))


@pytest.mark.parametrize("offered", ["abc", "req_1.2:3-4", "A" * 128])
def test_a_sane_id_is_kept(offered: str) -> None:
    assert request_id(offered) == offered


@pytest.mark.parametrize("offered", [None, "", "A" * 129, "a b", "a\nb", "ä", '"', "a/b", "a;b"])
def test_another_gets_a_new_one(offered: str | None) -> None:
    first, second = request_id(offered), request_id(offered)
    assert first != second
    assert first.startswith("req_")
    assert request_id(first) == first


def test_progress_follows_the_deltas_and_ends_with_the_timings() -> None:
    progress = Progress.of(REQUEST)
    assert (progress.drafter, progress.policy) == ("ngram+eagle3", "cost")
    assert progress.prompt_tokens == 3
    progress.note(Delta("a", (5,), ("target",), 0))
    progress.note(Delta("bc", (6, 7), ("ngram", "target"), 1, verified=4))
    assert (progress.tokens, progress.rounds, progress.drafted, progress.accepted) == (3, 1, 4, 1)
    assert progress.decoded == 2
    done = timings(12, REQUEST)
    progress.note(Finished("stop", Usage(3, 0, 12), done))
    assert (progress.tokens, progress.rounds) == (12, 4)
    assert (progress.drafted, progress.accepted) == (8, 6)
    assert progress.decoded == 12


def test_speculation_that_is_off_has_no_drafter() -> None:
    off = GenerationRequest((1,), speculation=Speculation(policy="off"))
    assert (Progress.of(off).drafter, Progress.of(off).policy) == ("off", "off")


def test_tau_is_that_of_all_answers_of_a_request() -> None:
    trace = Trace("id", "POST", "/v1/completions")
    assert (trace.tokens, trace.tau) == (0, None)
    for tokens, rounds in ((9, 2), (5, 4)):
        answer = Progress("ngram", "cost", 3, tokens=tokens, rounds=rounds)
        trace.answers.append(answer)
    assert (trace.tokens, trace.tau) == (14, 2.0)


def test_what_does_not_apply_is_left_out() -> None:
    trace = Trace("id", "GET", "/health", status=200)
    assert trace.described().keys() == {"request_id", "method", "path", "status", "ms"}
    trace = Trace("id", "WS", "/v1/responses", key="k", connection="c", status=429)
    trace.code = "queue_full"
    trace.answers.append(Progress("ngram", "cost", 3, tokens=5, rounds=2))
    known = trace.described()
    assert known["ms"] >= 0
    del known["ms"]
    assert known == {
        "request_id": "id",
        "method": "WS",
        "path": "/v1/responses",
        "status": 429,
        "key": "k",
        "connection": "c",
        "code": "queue_full",
        "tokens": 5,
        "tau": 2.0,
        "drafter": "ngram",
    }


def test_a_request_has_one_line_at_its_end(caplog: pytest.LogCaptureFixture) -> None:
    traces = Traces()
    with (
        caplog.at_level(logging.INFO, "gateway.access"),
        traces.running(Trace("id", "POST", "/v1/responses")) as trace,
    ):
        assert list(traces) == [trace]
        assert CURRENT.get() is trace
        assert not caplog.records
        trace.status = 200
    assert (list(traces), CURRENT.get()) == ([], None)
    (line,) = caplog.records
    assert line.getMessage().startswith("POST /v1/responses 200 ")
    assert line.fields["request_id"] == "id"  # type: ignore[attr-defined]


def test_who_left_before_an_answer_has_a_status_for_that() -> None:
    traces, trace = Traces(), Trace("id", "POST", "/")
    with pytest.raises(asyncio.CancelledError), traces.running(trace):
        raise asyncio.CancelledError
    assert (trace.status, list(traces)) == (LEFT, [])


async def test_tasks_of_a_request_know_it_and_others_do_not() -> None:
    traces = Traces()

    async def known() -> str | None:
        await asyncio.sleep(0)
        trace = CURRENT.get()
        return None if trace is None else trace.id

    async def request(name: str) -> str | None:
        with traces.running(Trace(name, "GET", "/")):
            return await asyncio.create_task(known())

    assert await asyncio.gather(request("a"), request("b"), known()) == ["a", "b", None]
