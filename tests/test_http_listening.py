"""Listening ends: whoever connected before that is answered, or waits for the next gateway."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import trustme
import uvloop
from aiohttp import web

from gateway.http.app import make_app, make_runner
from gateway.http.gateway import Gateway
from gateway.http.listening import Listeners, stop_listening
from gateway.settings import Settings
from tests.fake_engine import FakeEngine
from tests.http_serving import listening

BODY = b'{"input": "x"}'
ASKED = (
    b"POST /v1/responses HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n%s" % (len(BODY), BODY)
)
MANY = 20


@asynccontextmanager
async def listens() -> AsyncIterator[tuple[web.AppRunner, socket.socket]]:
    """A gateway that refuses everybody, as one that drains."""
    gateway = Gateway(Settings(), FakeEngine())
    runner, listener = make_runner(make_app(gateway)), listening()
    await runner.setup()
    await web.SockSite(runner, listener).start()
    gateway.draining = True
    try:
        yield runner, listener
    finally:
        await runner.cleanup()


def connect(listener: socket.socket) -> list[socket.socket]:
    """Clients that have asked, of which the loop has seen none yet."""
    clients = [socket.create_connection(listener.getsockname(), timeout=10) for _ in range(MANY)]
    for client in clients:
        client.sendall(ASKED)
    return clients


def read(client: socket.socket) -> bytes:
    with client:
        found = b""
        while part := client.recv(4096):
            found += part
        return found


async def answer_those_in_the_queue() -> None:
    async with listens() as (runner, listener):
        clients = connect(listener)
        address = listener.getsockname()
        await stop_listening(runner, Listeners([listener]))
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address, timeout=10)
        for client in clients:
            answer = await asyncio.to_thread(read, client)
            assert answer.startswith(b"HTTP/1.1 503 ")
            assert b'"code":"draining"' in answer
            assert b"Retry-After: 5" in answer
            assert b"Connection: close" in answer


async def leave_those_in_the_queue_of_others() -> None:
    async with listens() as (runner, listener):
        with listener.dup() as theirs:
            clients = connect(listener)
            await stop_listening(runner, Listeners([]))
            theirs.setblocking(False)
            waiting = 0
            while True:
                try:
                    connection, _ = theirs.accept()
                except BlockingIOError:
                    break
                with connection:
                    assert connection.recv(len(ASKED)) == ASKED
                waiting += 1
            for client in clients:
                client.close()
            assert waiting == MANY, "the next gateway has them all"


async def stop_beside_a_silent_handshake() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    async with listens() as (runner, listener):
        with socket.create_connection(listener.getsockname(), timeout=10):
            # The loop's own limit for a handshake is a minute.
            async with asyncio.timeout(30):
                await stop_listening(runner, Listeners([listener], context))


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_who_says_nothing_holds_up_no_stop(
    run: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.http.listening.HANDSHAKE_SECONDS", 0.3)
    run(stop_beside_a_silent_handshake())


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
@pytest.mark.parametrize("what", [answer_those_in_the_queue, leave_those_in_the_queue_of_others])
def test_nobody_is_reset(run: Callable[..., None], what: Callable[..., object]) -> None:
    run(what())
