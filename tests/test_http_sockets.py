"""Sockets of clients that do not read: each ends within its deadline, and nothing stays behind."""

from __future__ import annotations

import asyncio
import socket as sockets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from bench.raw_socket import opened
from gateway.http.app import make_runner
from gateway.http.outbox import Outbox
from gateway.http.responses import sockets as gateway_sockets
from gateway.http.responses.sockets import Socket, make_socket, next_message
from tests.fake_engine import FakeEngine
from tests.http_serving import ask, serving, socket_to, until
from tests.patience import PATIENCE

DEADLINE = 0.2
UNREAD = bytes(16 << 20)
"""More than the kernel takes for a client that does not read."""

Handle = Callable[[Socket, Outbox, asyncio.Transport], Awaitable[None]]


@asynccontextmanager
async def handling(handle: Handle) -> AsyncIterator[tuple[str, web.AppRunner]]:
    """A server whose sockets `handle` handles, once they are open."""

    async def connect(request: web.Request) -> web.StreamResponse:
        socket = make_socket((), 1 << 20)
        await socket.prepare(request)
        transport = request.transport
        assert transport is not None
        await handle(socket, Outbox(socket, transport, DEADLINE), transport)
        return socket

    app = web.Application()
    app.router.add_get("/v1/responses", connect)
    runner = make_runner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    try:
        yield f"http://{host}:{port}", runner
    finally:
        await runner.cleanup()


def connections(runner: web.AppRunner) -> int:
    assert runner.server is not None
    return len(runner.server.connections)


async def test_who_pings_and_does_not_read_is_dropped() -> None:
    engine = FakeEngine("fine")
    async with serving(engine, send_deadline=DEADLINE) as served:
        async with opened(served.url, receive_buffer=4096) as client:
            assert connections(served.runner) == 1

            async def flood() -> None:
                while True:
                    await client.ping(bytes(125), times=1000)

            with pytest.raises((ConnectionError, TimeoutError)):
                await asyncio.wait_for(flood(), PATIENCE)
        await until(lambda: connections(served.runner) == 0)
        async with socket_to(served) as socket:
            assert (await ask(socket, input="x"))[-1]["type"] == "response.completed"


async def test_pings_are_answered_with_their_payload_and_pongs_are_not() -> None:
    async with serving(FakeEngine("fine")) as served, opened(served.url) as client:
        await client.frame(0xA, b"nobody asked")
        await client.ping(b"are you there")
        assert await client.receive() == (0xA, b"are you there")
        await client.text('{"type":"response.create","input":"x"}')
        assert (await client.receive())[0] == 0x1


async def test_closing_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_sockets, "CLOSING_SECONDS", DEADLINE)
    closed = asyncio.Event()

    async def handle(socket: Socket, outbox: Outbox, transport: asyncio.Transport) -> None:
        transport.write(UNREAD)
        assert await socket.close(code=1001)
        closed.set()

    async with handling(handle) as (url, runner), opened(url, receive_buffer=4096):
        await asyncio.wait_for(closed.wait(), PATIENCE)
        await until(lambda: connections(runner) == 0)


async def test_a_broken_frame_of_who_does_not_read_ends_the_socket(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gateway_sockets, "CLOSING_SECONDS", DEADLINE)
    ended = asyncio.Event()

    async def handle(socket: Socket, outbox: Outbox, transport: asyncio.Transport) -> None:
        transport.write(UNREAD)
        assert await next_message(socket, outbox) is None
        ended.set()

    async with handling(handle) as (url, runner), opened(url, receive_buffer=4096) as client:
        await client.raw(b"\xff\xff\xff\xff")
        await asyncio.wait_for(ended.wait(), PATIENCE)
        await until(lambda: connections(runner) == 0)


async def test_what_is_left_unread_is_dropped_at_the_deadline() -> None:
    left: list[asyncio.Transport] = []

    async def handle(socket: Socket, outbox: Outbox, transport: asyncio.Transport) -> None:
        transport.write(UNREAD)
        left.append(transport)
        # As after a ping that was not answered: closed, and its buffer is full.
        transport.close()
        outbox.leave()

    async with handling(handle) as (url, _), opened(url, receive_buffer=4096):
        await until(lambda: bool(left))
        assert left[0].get_write_buffer_size() > 0
        await until(lambda: left[0].get_write_buffer_size() == 0)


async def test_who_reads_is_not_dropped() -> None:
    done = asyncio.Event()

    async def handle(socket: Socket, outbox: Outbox, transport: asyncio.Transport) -> None:
        await outbox.pong(b"first")
        outbox.leave()
        await asyncio.sleep(2 * DEADLINE)
        await outbox.pong(b"second")
        done.set()

    async with handling(handle) as (url, _), opened(url) as client:
        assert await client.receive() == (0xA, b"first")
        assert await client.receive() == (0xA, b"second")
        await done.wait()


def test_the_kernel_has_buffers_that_the_tests_overfill() -> None:
    with sockets.socket() as probe:
        assert probe.getsockopt(sockets.SOL_SOCKET, sockets.SO_SNDBUF) < len(UNREAD)
