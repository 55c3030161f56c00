"""What a key may take, and when it may take more."""

from __future__ import annotations

from typing import Any

import aiohttp
import pytest

from gateway.http.completions.routes import require_room
from gateway.http.errors import RetryError, wire_error
from gateway.http.rates import Bucket, Rates
from gateway.limits import Limits
from gateway.settings import Settings
from models.errors import UserError
from tests.fake_engine import ENDLESS, FakeEngine
from tests.http_serving import Served, answer_of, ask, serving, socket_to, until

KEYS = ("first-key", "second-key")


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def refused(rates: Rates, owner: str | None = "a", answers: int = 1) -> RetryError:
    with pytest.raises(RetryError) as error:
        rates.begin(owner, answers)
    assert error.value.code == "rate_limit_exceeded"
    return error.value


def test_a_bucket_fills_evenly_and_no_further() -> None:
    bucket = Bucket(60, 0.0)
    assert bucket.wait(0.0) == 0
    bucket.take(60, 0.0)
    assert bucket.wait(0.0) == 1.0
    assert bucket.wait(0.5) == 0.5
    assert bucket.wait(1.0) == 0
    bucket.take(1, 3600.0)
    bucket.take(59, 3600.0)
    assert bucket.wait(3600.0) == 1.0


def test_a_debt_is_paid_first() -> None:
    bucket = Bucket(60, 0.0)
    bucket.take(180, 0.0)
    assert bucket.wait(0.0) == 121.0
    assert bucket.wait(120.5) == 0.5


def test_requests_in_a_minute(clock: Clock) -> None:
    rates = Rates(Limits(requests_per_minute=2), clock)
    rates.begin("a", 1)
    rates.begin("a", 1)
    error = refused(rates)
    assert error.retry_after == 30.0
    assert "at most 2 requests a minute" in error.message
    # Another key has its own, and who was refused took nothing.
    rates.begin("b", 1)
    clock.now += 30
    rates.begin("a", 1)
    refused(rates)


def test_tokens_in_a_minute_are_those_of_prompts_and_answers(clock: Clock) -> None:
    rates = Rates(Limits(tokens_per_minute=600), clock)
    rates.begin("a", 1)
    rates.charge("a", 500)
    rates.begin("a", 1)
    rates.charge("a", 400)
    error = refused(rates)
    assert error.retry_after == pytest.approx(30.1)
    assert "at most 600 tokens a minute" in error.message
    rates.begin(None, 1)
    clock.now += 30.2
    rates.begin("a", 1)


def test_answers_at_a_time(clock: Clock) -> None:
    rates = Rates(Limits(requests=3), clock)
    rates.begin("a", 2)
    rates.running("a", 2)
    refused(rates, answers=2)
    rates.begin("a", 1)
    rates.begin("b", 3)
    rates.running("a", -1)
    rates.begin("a", 2)


def test_other_limits_hold_at_once_and_a_debt_stays(clock: Clock) -> None:
    rates = Rates(Limits(requests_per_minute=10, tokens_per_minute=600), clock)
    rates.begin("a", 1)
    rates.charge("a", 900)
    assert refused(rates).retry_after == pytest.approx(30.1)
    # Twice as much a minute pays the same debt in half the time.
    rates.use(Limits(requests_per_minute=1, tokens_per_minute=1200))
    assert refused(rates).retry_after == pytest.approx(15.05)
    clock.now += 16
    rates.begin("a", 1)
    assert "at most 1 requests a minute" in refused(rates).message
    rates.use(Limits())
    for _ in range(50):
        rates.begin("a", 1)
    rates.use(Limits(requests=1))
    rates.running("a", 1)
    refused(rates)


def test_without_limits_nothing_is_refused(clock: Clock) -> None:
    rates = Rates(Limits(), clock)
    rates.running("a", 1000)
    rates.charge("a", 10**9)
    for _ in range(1000):
        rates.begin("a", 8)


def test_the_wait_is_told_in_whole_seconds() -> None:
    for wait, told in ((0.001, 1), (1.0, 1), (1.2, 2), (59.5, 60)):
        error = RetryError("later", code="rate_limit_exceeded", retry_after=wait)
        assert (wire_error(error).status, wire_error(error).retry_after) == (429, told)
    assert wire_error(UserError("full", code="queue_full")).retry_after == 1
    assert wire_error(UserError("no", code="invalid_value")).retry_after is None


async def post(
    served: Served, path: str, body: dict[str, Any], key: str = KEYS[0]
) -> tuple[int, str | None, dict[str, Any]]:
    async with (
        aiohttp.ClientSession(headers={"Authorization": f"Bearer {key}"}) as session,
        session.post(served.base + path, json=body) as response,
    ):
        return response.status, response.headers.get("Retry-After"), await response.json()


async def test_over_http_it_is_429_with_a_time() -> None:
    async with serving(FakeEngine("abc"), api_keys=KEYS, limits_requests_per_minute=1) as served:
        assert (await post(served, "/responses", {"input": "x"}))[0] == 200
        for path, body in (
            ("/responses", {"input": "x"}),
            ("/completions", {"prompt": "x"}),
            ("/chat/completions", {"messages": [{"role": "user", "content": "x"}]}),
        ):
            status, retry, told = await post(served, path, body)
            assert (status, retry) == (429, "60")
            assert told["error"]["code"] == "rate_limit_exceeded"
            assert told["error"]["type"] == "rate_limit_error"
        assert (await post(served, "/responses", {"input": "x"}, KEYS[1]))[0] == 200


async def test_on_a_socket_it_is_the_error_event() -> None:
    async with serving(FakeEngine("abc"), limits_tokens_per_minute=60) as served:
        async with socket_to(served) as socket:
            # A prompt and an answer of more than a minute's tokens: the next one waits for them.
            assert (await ask(socket, input="x" * 80))[-1]["type"] == "response.completed"
            (event,) = await ask(socket, input="x")
            assert (event["type"], event["status"]) == ("error", 429)
            assert event["error"]["code"] == "rate_limit_exceeded"
            assert event["retry_after"] >= 1
        assert served.gateway.metrics.refused["rate_limit_exceeded"] == 1


async def test_answers_at_a_time_are_those_that_run_or_wait() -> None:
    engine = FakeEngine("x" * 50, held=2)
    async with serving(engine, api_keys=KEYS, limits_requests=2) as served:
        headers = {"Authorization": f"Bearer {KEYS[0]}"}
        async with socket_to(served, headers=headers) as socket:
            for lane in "ab":
                await socket.send_json({"type": "response.create", "input": "x", "stream_id": lane})
            await until(lambda: engine.running == 2)
            status, retry, told = await post(served, "/completions", {"prompt": "x"})
            assert (status, retry) == (429, "1")
            assert "2 of at most 2 answers at a time" in told["error"]["message"]
            body = {"prompt": "x", "max_tokens": 1}
            assert (await post(served, "/completions", body, KEYS[1]))[0] == 200
            engine.go_on()
            for _ in "ab":
                await answer_of(socket)
            await until(lambda: engine.running == 0)
            assert (await post(served, "/completions", body))[0] == 200


async def test_who_left_takes_nothing_any_more() -> None:
    engine = FakeEngine(ENDLESS, pace=0.01)
    async with serving(engine, limits_requests=1) as served:
        async with socket_to(served) as socket:
            await socket.send_json({"type": "response.create", "input": "x"})
            await until(lambda: engine.running == 1)
        await until(lambda: engine.running == 0)
        engine.answer, engine.pace = "ok", 0.0
        async with socket_to(served) as socket:
            assert (await ask(socket, input="x"))[-1]["type"] == "response.completed"


def test_more_choices_than_a_key_may_ever_have_are_no_matter_of_time() -> None:
    settings = Settings(limits_requests=3)
    require_room(1, 3, settings)
    with pytest.raises(UserError) as error:
        require_room(1, 4, settings)
    assert (error.value.code, error.value.param) == ("unsupported_value", "n")
