"""The Autobahn cases against the socket that the gateway makes, on the loop it runs on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
import uvloop
from aiohttp import WSMsgType, web

from gateway.http.app import make_runner
from gateway.http.outbox import Outbox
from gateway.http.responses.sockets import make_socket, next_message
from tests.clients_support import CLIENTS, python_with, run_client
from tests.patience import PATIENCE

LARGEST = 1 << 25
"""The cases echo messages of 16 MiB; nothing else differs from the real endpoint's settings."""

NO_COMPRESSION = ("12.*", "13.*")
"""Cases of an extension that is not offered."""

KNOWN = {"7.9.5"}
"""A close code of 1006 in a frame is answered as if it were one."""

CASES = 301


class Started(NamedTuple):
    loop: asyncio.AbstractEventLoop
    stop: asyncio.Event
    url: str


async def echo(request: web.Request) -> web.StreamResponse:
    socket = make_socket((), LARGEST)
    await socket.prepare(request)
    outbox = Outbox(socket, request.transport)
    while (message := await next_message(socket, outbox)) is not None:
        text = message.type is WSMsgType.TEXT
        await socket.send_frame(message.data.encode() if text else message.data, message.type)
    return socket


@contextmanager
def echoing() -> Iterator[str]:
    """In a thread of its own: the tests' own loop is another."""
    started: Future[Started] = Future()

    async def serve() -> None:
        app = web.Application()
        app.router.add_get("/", echo)
        runner = make_runner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        stop = asyncio.Event()
        started.set_result(Started(asyncio.get_running_loop(), stop, f"ws://{host}:{port}/"))
        await stop.wait()
        await runner.cleanup()

    thread = threading.Thread(target=lambda: uvloop.run(serve()), name="echo")
    thread.start()
    server = started.result(PATIENCE)
    try:
        yield server.url
    finally:
        server.loop.call_soon_threadsafe(server.stop.set)
        thread.join(PATIENCE)


@pytest.fixture(scope="module")
def kosoku() -> Path:
    return python_with("kosoku")


async def test_the_autobahn_cases(kosoku: Path, tmp_path: Path) -> None:
    script = CLIENTS / "python" / "run_kosoku.py"
    with echoing() as url:
        verdicts = await run_client(
            [kosoku, script, url, "8", ",".join(NO_COMPRESSION)], directory=tmp_path
        )
    failed = {case: found for case, found in verdicts.items() if not found["passed"]}
    assert {case: found for case, found in failed.items() if case not in KNOWN} == {}
    assert len(verdicts) == CASES
