"""Requests gone wrong: never a hang, a crash or a 500, and never a lost slot.

What is tried is the same in every run. `OUTPACE_FUZZ=20000` tries so many of each kind instead, and
others every time.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.raw_socket import CLOSE, PONG, RawSocket, opened
from gateway.engine.engine import Engine
from gateway.engine.options import EngineOptions
from models.package import load_package
from tests.fake_engine import FakeEngine
from tests.fuzz_documents import RAW, VALID_POSTED, VALID_SOCKET, garbled, mutated
from tests.fuzz_support import FEW, FUZZ, still_answers
from tests.http_serving import ask, socket_to
from tests.server_thread import ServerThread, server_thread
from tests.server_thread import given as given_engine

SOCKET = st.sampled_from(VALID_SOCKET)
POSTED = st.sampled_from(VALID_POSTED)
JSON_TYPE = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def server() -> Iterator[ServerThread]:
    with server_thread(lambda: given_engine(FakeEngine("abc"))) as started:
        yield started


@pytest.fixture(scope="module")
def real_server(tiny_package: Path) -> Iterator[ServerThread]:
    @asynccontextmanager
    async def make() -> AsyncIterator[Engine]:
        options = EngineOptions(slots=2, queue=16, context=96, threads=1)
        engine = await Engine.start(load_package(tiny_package), options)
        try:
            yield engine
        finally:
            await engine.close()

    with server_thread(make) as started:
        yield started


async def send_text(server: ServerThread, data: bytes) -> list[dict[str, Any]]:
    """All events that a text frame brings, on a connection of its own."""
    async with opened(server.served.url) as client:
        await client.frame(0x1, data)
        events = await _until_pong(client, b"read")
        # It is dispatched; what it asked for may still run.
        await server.idle()
        return events + await _until_pong(client, b"done")


async def _until_pong(client: RawSocket, payload: bytes) -> list[dict[str, Any]]:
    events = []
    try:
        await client.ping(payload)
        while (frame := await client.receive()) != (PONG, payload):
            if frame[0] == CLOSE:
                break
            events.append(json.loads(frame[1]))
    except (EOFError, ConnectionError):
        pass  # closed, as it may be: asked again on another connection
    return events


async def post(server: ServerThread, path: str, body: bytes) -> tuple[int, str]:
    async with (
        aiohttp.ClientSession() as session,
        session.post(server.served.url + path, data=body, headers=JSON_TYPE) as response,
    ):
        return response.status, await response.text()


def check_events(server: ServerThread, events: list[dict[str, Any]]) -> None:
    for event in events:
        assert event["type"] != "response.failed", event
        if event["type"] == "error":
            assert event["status"] < 500, event
            assert event["error"]["message"]
    assert server.take_errors() == []
    server.run(still_answers(server))


def check_posted(server: ServerThread, status: int, text: str) -> None:
    assert status < 500, text
    if status != 200:
        error = json.loads(text)["error"]
        assert set(error) == {"type", "code", "message", "param"}
        assert len(error["message"]) < 1000
    assert '"server_error"' not in text
    assert server.take_errors() == []
    server.run(still_answers(server))


@FUZZ
@given(st.data())
def test_mutated_messages(server: ServerThread, data: st.DataObject) -> None:
    text = data.draw(mutated(data.draw(SOCKET)))
    events = server.run(send_text(server, text.encode("utf-8", "surrogatepass")))
    check_events(server, events)


@FUZZ
@given(st.data())
def test_garbled_messages(server: ServerThread, data: st.DataObject) -> None:
    """Not always UTF-8: then the connection is closed."""
    events = server.run(send_text(server, data.draw(garbled(data.draw(SOCKET)))))
    check_events(server, events)


@FUZZ
@given(st.data())
def test_mutated_bodies(server: ServerThread, data: st.DataObject) -> None:
    path, document = data.draw(POSTED)
    body = data.draw(mutated(document)).encode("utf-8", "surrogatepass")
    check_posted(server, *server.run(post(server, path, body)))


@FUZZ
@given(st.data())
def test_garbled_bodies(server: ServerThread, data: st.DataObject) -> None:
    path, document = data.draw(POSTED)
    check_posted(server, *server.run(post(server, path, data.draw(garbled(document)))))


@FEW
@given(st.data())
def test_the_engine_itself(real_server: ServerThread, data: st.DataObject) -> None:
    """A request that passes the wire's own checks is not always one that the engine can take."""
    if data.draw(st.booleans()):
        text = data.draw(mutated(data.draw(SOCKET))).encode("utf-8", "surrogatepass")
        check_events(real_server, real_server.run(send_text(real_server, text)))
    else:
        path, document = data.draw(POSTED)
        body = data.draw(mutated(document)).encode("utf-8", "surrogatepass")
        check_posted(real_server, *real_server.run(post(real_server, path, body)))


@pytest.mark.parametrize("raw", RAW, ids=lambda raw: f"{raw[:20]!a}-{len(raw)}")
def test_what_json_is_not(server: ServerThread, raw: str) -> None:
    """Alone, and as the value of a field that is read and of one that is not."""
    for text in (raw, f'{{"type":"response.create","input":"Hi","seed":{raw}}}'):
        check_events(server, server.run(send_text(server, text.encode())))
    for path, field in (("responses", "input"), ("chat/completions", "messages")):
        for name in (field, "temperature", "unknown"):
            body = f'{{"{name}":{raw}}}'.encode()
            check_posted(server, *server.run(post(server, f"/v1/{path}", body)))


def test_many_at_once(server: ServerThread) -> None:
    """One connection's garbage is nobody else's trouble."""

    async def together() -> None:
        async def bad(number: int) -> None:
            for raw in RAW[number::8]:
                await send_raw(raw)

        async def send_raw(raw: str) -> None:
            async with opened(server.served.url) as client:
                await client.frame(0x1, raw.encode())
                await _until_pong(client, b"read")

        async def good() -> None:
            async with socket_to(server.served) as socket:
                for _ in range(20):
                    events = await ask(socket, input="Hi")
                    assert events[-1]["type"] == "response.completed"

        async with asyncio.TaskGroup() as group:
            for number in range(8):
                group.create_task(bad(number))
            for _ in range(4):
                group.create_task(good())

    server.run(together())
    assert server.take_errors() == []
    server.run(server.idle())
