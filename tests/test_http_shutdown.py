"""Draining, and the HTTP transport."""

from __future__ import annotations

import asyncio

import aiohttp
import orjson
from aiohttp import WSMsgType

from models.constraints.source import ConstraintSource
from tests.fake_engine import ENDLESS, MODEL, FakeEngine
from tests.http_serving import answer_of, serving, socket_to, until
from tests.patience import PATIENCE


async def test_an_idle_socket_is_closed_1001() -> None:
    async with serving(FakeEngine()) as served, socket_to(served) as socket:
        closing = asyncio.create_task(served.runner.cleanup())
        message = await socket.receive(timeout=PATIENCE)
        assert message.type is WSMsgType.CLOSE
        assert message.data == 1001
        await closing


async def test_a_running_answer_may_end_and_waiting_ones_are_refused() -> None:
    engine = FakeEngine("abcdefgh", held=4)
    async with serving(engine, drain_seconds=PATIENCE) as served, socket_to(served) as socket:
        for _ in range(2):
            await socket.send_json({"type": "response.create", "input": "x"})
        await until(lambda: engine.running == 1)
        closing = asyncio.create_task(served.runner.cleanup())
        await until(lambda: served.gateway.draining)
        engine.go_on()
        first = await answer_of(socket)
        assert first[-1]["type"] == "response.completed"
        (second,) = await answer_of(socket)
        assert (second["status"], second["error"]["code"]) == (503, "draining")
        assert (await socket.receive(timeout=PATIENCE)).data == 1001
        await closing


class CompilingEngine(FakeEngine):
    """Compiles nothing before `compiled_now` is set."""

    def __init__(self) -> None:
        super().__init__("{}")
        self.compiled_now = asyncio.Event()
        self.compiling = 0

    async def compile(self, constraint: ConstraintSource, key: str | None = None) -> None:
        self.compiling += 1
        await self.compiled_now.wait()


async def test_who_has_no_answer_yet_is_told_that_there_will_be_none() -> None:
    engine = CompilingEngine()
    form = {"response_format": {"type": "json_object"}}
    async with (
        serving(engine, drain_seconds=30) as served,
        aiohttp.ClientSession() as session,
        socket_to(served) as socket,
    ):
        body = {"model": MODEL, "messages": [{"role": "user", "content": "x"}], **form}
        asked = asyncio.create_task(session.post(f"{served.url}/v1/chat/completions", json=body))
        text = {"text": {"format": {"type": "json_object"}}}
        await socket.send_json({"type": "response.create", "input": "x", **text})
        await until(lambda: engine.compiling == 2)
        assert served.gateway.running == 0
        closing = asyncio.create_task(served.runner.cleanup())
        await until(lambda: served.gateway.draining)
        engine.compiled_now.set()
        async with await asked as response:
            told = await response.json()
        assert (response.status, told["error"]["code"]) == (503, "draining")
        assert "Retry-After" in response.headers
        (refused,) = await answer_of(socket)
        assert (refused["status"], refused["error"]["code"]) == (503, "draining")
        await closing
    assert engine.requests == []


async def test_a_connection_that_breaks_during_the_drain_does_not_hold_it_up() -> None:
    engine = FakeEngine(ENDLESS, pace=0.01)
    async with serving(engine, drain_seconds=30) as served:
        async with socket_to(served) as socket:
            await socket.send_json({"type": "response.create", "input": "x"})
            await until(lambda: engine.running == 1)
            closing = asyncio.create_task(served.runner.cleanup())
            await until(lambda: served.gateway.draining)
            await asyncio.sleep(0.02)
            socket._response.connection.transport.abort()  # type: ignore[union-attr]
        await asyncio.wait_for(closing, PATIENCE)
    assert engine.running == 0


async def test_answers_are_cut_at_the_deadline() -> None:
    engine = FakeEngine(ENDLESS, pace=0.01)
    async with (
        serving(engine, drain_seconds=0.1) as served,
        socket_to(served) as socket,
        aiohttp.ClientSession() as session,
    ):
        await socket.send_json({"type": "response.create", "input": "x"})
        post = session.post(f"{served.base}/responses", json={"input": "x"})
        posted = asyncio.create_task(post.__aenter__())
        await until(lambda: engine.running == 2)
        said = engine.said
        closing = asyncio.create_task(served.runner.cleanup())
        events = await answer_of(socket)
        assert events[-1]["response"]["status"] == "cancelled"
        assert (await socket.receive(timeout=PATIENCE)).data == 1001
        body = orjson.loads(await (await posted).read())
        assert body["status"] == "cancelled"
        assert len(body["output"][0]["content"][0]["text"]) > 0
        await closing
        assert engine.said - said < 2 * 200, "neither has said more than it can in two seconds"
    assert engine.running == 0


async def test_a_posted_answer_ends_with_its_client() -> None:
    engine = FakeEngine(ENDLESS, pace=0.01)
    async with serving(engine) as served:
        for stream in (False, True):
            async with aiohttp.ClientSession() as session:
                post = session.post(
                    f"{served.base}/responses", json={"input": "x", "stream": stream}
                )
                posted = asyncio.create_task(post.__aenter__())
                await until(lambda: engine.running == 1)
                posted.cancel()
            said = engine.said
            await until(lambda: engine.running == 0)
            assert engine.said - said < 50, "at once: no more than it can say in half a second"
        await until(lambda: served.gateway.running == 0)


async def test_streamed_events_are_server_sent_events() -> None:
    async with (
        serving(FakeEngine("ab")) as served,
        aiohttp.ClientSession() as session,
        session.post(f"{served.base}/responses", json={"input": "x", "stream": True}) as response,
    ):
        assert response.content_type == "text/event-stream"
        blocks = (await response.text()).removesuffix("\n\n").split("\n\n")
    events = []
    for block in blocks:
        kind, data = block.split("\n")
        events.append(orjson.loads(data.removeprefix("data: ")))
        assert kind == f"event: {events[-1]['type']}"
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert events[-1]["type"] == "response.completed"
    assert events[-1]["response"]["output"][0]["content"][0]["text"] == "ab"


async def test_a_refusal_before_the_stream_is_a_status() -> None:
    async with (
        serving(FakeEngine()) as served,
        aiohttp.ClientSession() as session,
        session.post(
            f"{served.base}/responses", json={"input": "x", "stream": True, "model": "other"}
        ) as response,
    ):
        assert response.status == 404
        assert (await response.json())["error"]["code"] == "model_not_found"
