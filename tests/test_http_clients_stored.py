"""openai-python, unmodified, on stored and background responses, and on refusals."""

from __future__ import annotations

import openai
import pytest
from openai import AsyncOpenAI

from tests.fake_engine import ENDLESS, MODEL, FakeEngine
from tests.http_serving import Served, serving, until

LONG = "abcdefghij" * 20


def client_of(served: Served, key: str = "none") -> AsyncOpenAI:
    return AsyncOpenAI(base_url=served.base, api_key=key, max_retries=0)


async def test_a_background_response_is_polled_to_its_end() -> None:
    engine = FakeEngine("abc", held=1)
    async with serving(engine) as served, client_of(served) as client:
        response = await client.responses.create(model=MODEL, input="x", background=True)
        assert (response.status, response.background) == ("in_progress", True)
        engine.go_on()
        await until(lambda: not served.gateway.kept.find(response.id, None).running)
        found = await client.responses.retrieve(response.id)
        assert (found.status, found.output_text) == ("completed", "abc")


async def test_a_stream_is_taken_up_where_it_was_left() -> None:
    async with serving(FakeEngine(LONG, pace=0.003)) as served, client_of(served) as client:
        stream = await client.responses.create(model=MODEL, input="x", background=True, stream=True)
        seen = []
        async for event in stream:
            seen.append(event)
            if len(seen) == 40:
                break
        await stream.close()
        response_id = seen[0].response.id  # type: ignore[union-attr]
        rest = [
            event
            async for event in await client.responses.retrieve(
                response_id, stream=True, starting_after=seen[-1].sequence_number
            )
        ]
    numbers = [event.sequence_number for event in (*seen, *rest)]
    assert numbers == list(range(len(numbers)))
    deltas = [e.delta for e in (*seen, *rest) if e.type == "response.output_text.delta"]
    assert "".join(deltas) == LONG
    assert rest[-1].type == "response.completed"


async def test_it_is_cancelled_and_deleted() -> None:
    engine = FakeEngine(ENDLESS, pace=0.01)
    async with serving(engine) as served, client_of(served) as client:
        response = await client.responses.create(model=MODEL, input="x", background=True)
        assert (await client.responses.cancel(response.id)).status == "cancelled"
        assert engine.running == 0
        await client.responses.delete(response.id)
        with pytest.raises(openai.NotFoundError) as error:
            await client.responses.retrieve(response.id)
        assert error.value.code == "response_not_found"


async def test_refusals_have_the_classes_and_ids_that_clients_expect() -> None:
    async with serving(
        FakeEngine("ok"), api_keys=("right",), limits_requests_per_minute=1
    ) as served:
        async with client_of(served, "wrong") as client:
            with pytest.raises(openai.AuthenticationError) as denied:
                await client.responses.create(model=MODEL, input="x")
            assert denied.value.code == "invalid_api_key"
        async with client_of(served, "right") as client:
            answered = await client.responses.create(model=MODEL, input="x")
            assert answered._request_id is not None
            with pytest.raises(openai.RateLimitError) as limited:
                await client.responses.create(model=MODEL, input="x")
        assert limited.value.code == "rate_limit_exceeded"
        assert limited.value.request_id is not None
        assert int(limited.value.response.headers["Retry-After"]) <= 60


async def test_a_timeout_of_ours_is_a_server_error() -> None:
    engine = FakeEngine(ENDLESS, pace=0.01)
    async with serving(engine, request_seconds=0.1) as served, client_of(served) as client:
        with pytest.raises(openai.InternalServerError) as error:
            await client.chat.completions.create(
                model=MODEL, messages=[{"role": "user", "content": "x"}]
            )
    assert (error.value.status_code, error.value.code) == (504, "request_timeout")
