"""openai-python's Responses WebSocket client, unmodified: every event is held to its types."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from openai import AsyncOpenAI, OpenAI, OpenAIError
from websockets.exceptions import ConnectionClosedOK, InvalidStatus

from tests.clients_support import FULL, KEY, SelectiveEngine
from tests.fake_engine import ENDLESS, MODEL, FakeEngine
from tests.http_serving import Served, is_last, serving, until
from tests.patience import PATIENCE
from tests.strict_types import validate_event

SAID = "Hello, world"


@asynccontextmanager
async def connected(served: Served, key: str = KEY) -> AsyncIterator[Any]:
    async with (
        AsyncOpenAI(base_url=served.base, api_key=key) as client,
        client.responses.connect() as connection,
    ):
        yield connection


async def events_of(connection: Any, count: int = 1) -> list[dict[str, Any]]:
    """The events up to the last of `count` responses, as they were on the wire."""
    events: list[dict[str, Any]] = []
    while count:
        raw = await asyncio.wait_for(connection.recv_bytes(), PATIENCE)
        events.append(json.loads(raw))
        validate_event(events[-1])
        assert connection.parse_event(raw).type == events[-1]["type"]
        count -= is_last(events[-1])
    return events


async def ask(connection: Any, **fields: Any) -> list[dict[str, Any]]:
    await connection.response.create(model=MODEL, **fields)
    return await events_of(connection)


def text_of(events: list[dict[str, Any]]) -> str:
    return "".join(event.get("delta", "") for event in events)


async def test_text_and_turns() -> None:
    engine = FakeEngine(SAID)
    async with serving(engine) as served, connected(served) as connection:
        first = await ask(connection, input="Hi", instructions="Be brief.", store=False)
        assert text_of(first) == SAID
        second = await ask(
            connection,
            input=[{"role": "user", "content": "And?"}],
            previous_response_id=first[-1]["response"]["id"],
            store=False,
        )
    assert second[-1]["response"]["previous_response_id"] == first[-1]["response"]["id"]
    assert engine.prompt() == f"<user>Hi</><assistant>{SAID}</><user>And?</><assistant>"


async def test_the_blocking_client_iterates_and_dispatches() -> None:
    def talk(base: str) -> tuple[str, list[str]]:
        heard: list[str] = []
        with OpenAI(base_url=base, api_key=KEY) as client:
            manager = client.responses.connect()
            # What is sent before the connection is there waits for it.
            manager.send({"type": "response.create", "model": MODEL, "input": "Hi"})
            manager.on("response.output_text.delta", lambda event: heard.append(event.delta))
            with manager as connection:
                connection.on("response.completed", lambda event: connection.close())
                connection.dispatch_events()
            with client.responses.connect() as connection:
                connection.response.create(model=MODEL, input="Hi")
                kinds = []
                for event in connection:
                    kinds.append(event.type)
                    if event.type == "response.completed":
                        break
        return "".join(heard), kinds

    async with serving(FakeEngine(SAID)) as served:
        text, kinds = await asyncio.to_thread(talk, served.base)
    assert text == SAID
    assert (kinds[0], kinds[-1]) == ("response.created", "response.completed")


async def test_lanes() -> None:
    engine = FakeEngine("abcdef", held=3)
    async with serving(engine) as served, connected(served) as connection:
        for lane in ("one", "two"):
            await connection.response.create(model=MODEL, input="Hi", stream_id=lane)
        await until(lambda: engine.running == 2)
        engine.go_on()
        events = await events_of(connection, 2)
    assert engine.most_running == 2
    for lane in ("one", "two"):
        assert text_of([event for event in events if event["stream_id"] == lane]) == "abcdef"


async def test_logprobs_and_stop_and_limit() -> None:
    async with serving(FakeEngine("one END two")) as served, connected(served) as connection:
        include = ["message.output_text.logprobs"]
        scored = await ask(connection, input="Hi", include=include, top_logprobs=3)
        await connection.send({"type": "response.create", "input": "Hi", "stop": "END"})
        stopped = await events_of(connection)
        limited = await ask(connection, input="Hi", max_output_tokens=2)
    told = [
        entry
        for event in scored
        if event["type"] == "response.output_text.delta"
        for entry in event["logprobs"]
    ]
    assert [entry["logprob"] for entry in told] == [-(n + 1) / 8 for n in range(11)]
    assert {len(entry["top_logprobs"]) for entry in told} == {3}
    assert (text_of(stopped), stopped[-1]["response"]["stop_reason"]) == ("one ", "END")
    assert limited[-1]["type"] == "response.incomplete"


async def test_errors_leave_the_connection() -> None:
    engine = SelectiveEngine(SAID)
    async with serving(engine) as served, connected(served) as connection:
        for fields, status, code in (
            ({"input": "Hi", "temperature": 9}, 400, "unsupported_value"),
            ({"input": "Hi", "previous_response_id": "x"}, 400, "previous_response_not_found"),
            ({"input": FULL}, 429, "queue_full"),
            ({"input": "long " * 300}, 400, "context_length_exceeded"),
        ):
            (error,) = await ask(connection, **fields)
            assert (error["status"], error["error"]["code"]) == (status, code)
        await connection.send({"type": "response.create", "model": "gpt-4", "input": "Hi"})
        (error,) = await events_of(connection)
        assert (error["status"], error["error"]["code"]) == (404, "model_not_found")
        engine.failure = RuntimeError("the device is gone")
        failed = await ask(connection, input="Hi")
        assert failed[-1]["response"]["error"]["code"] == "server_error"
        engine.failure = None
        assert text_of(await ask(connection, input="Hi")) == SAID


async def test_steering_is_refused_as_the_client_expects() -> None:
    async with serving(FakeEngine(SAID)) as served, connected(served) as connection:
        await connection.response.steer(input="left", previous_response_id="resp_1")
        raw = await asyncio.wait_for(connection.recv_bytes(), PATIENCE)
    validate_event(json.loads(raw))
    assert connection.parse_event(raw).error.code == "steering_not_supported"


async def test_an_error_without_a_handler_is_raised() -> None:
    async with serving(FakeEngine(SAID)) as served, connected(served) as connection:
        await connection.response.create(model="gpt-4", input="Hi")
        with pytest.raises(OpenAIError, match="model_not_found"):
            await asyncio.wait_for(connection.dispatch_events(), PATIENCE)


async def test_a_wrong_key_is_refused_at_the_door() -> None:
    async with serving(FakeEngine(SAID), api_keys=(KEY,)) as served:
        with pytest.raises(InvalidStatus) as refused:
            async with connected(served, "wrong"):
                pass
        assert refused.value.response.status_code == 401
        async with connected(served) as connection:
            assert text_of(await ask(connection, input="Hi")) == SAID


async def test_closing_cancels() -> None:
    engine = FakeEngine(ENDLESS, pace=0.01)
    async with serving(engine) as served:
        async with connected(served) as connection:
            await connection.response.create(model=MODEL, input="Hi")
            await connection.recv()
            await until(lambda: engine.running == 1)
        await until(lambda: engine.running == 0)
        assert served.gateway.running == 0


async def test_a_drain_is_a_close_that_clients_reconnect_on() -> None:
    async with serving(FakeEngine(SAID)) as served, connected(served) as connection:
        assert text_of(await ask(connection, input="Hi")) == SAID
        closing = asyncio.create_task(served.runner.cleanup())
        with pytest.raises(ConnectionClosedOK) as closed:
            await asyncio.wait_for(connection.recv(), PATIENCE)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1001
        await closing
