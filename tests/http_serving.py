"""A gateway in this process, on a free port."""

from __future__ import annotations

import socket as sockets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
from aiohttp import web

from gateway.http.app import make_app, make_runner
from gateway.http.backend import Engine
from gateway.http.gateway import Gateway
from gateway.http.keys import KeyRing
from gateway.settings import Settings
from tests.patience import PATIENCE
from tests.patience import until as until


@dataclass(frozen=True, slots=True)
class Served:
    gateway: Gateway
    runner: web.AppRunner
    url: str

    @property
    def base(self) -> str:
        return f"{self.url}/v1"


def listening(send_buffer: int | None = None) -> sockets.socket:
    """A socket on a free port; `send_buffer` is what the kernel holds for a client, in bytes."""
    listener = sockets.socket()
    if send_buffer is not None:
        listener.setsockopt(sockets.SOL_SOCKET, sockets.SO_SNDBUF, send_buffer)
    listener.bind(("127.0.0.1", 0))
    return listener


@asynccontextmanager
async def serving(
    engine: Engine | None,
    *,
    send_deadline: float = 10.0,
    keep_alive: float = 15.0,
    keys: KeyRing | None = None,
    send_buffer: int | None = None,
    **settings: Any,
) -> AsyncIterator[Served]:
    gateway = Gateway(Settings(**{"drain_seconds": 0.2, **settings}), engine, keys)
    runner = make_runner(make_app(gateway, send_deadline, keep_alive), gateway.limits)
    await runner.setup()
    await web.SockSite(runner, listening(send_buffer)).start()
    host, port = runner.addresses[0][:2]
    try:
        yield Served(gateway, runner, f"http://{host}:{port}")
    finally:
        await runner.cleanup()


@asynccontextmanager
async def socket_to(
    served: Served, **options: Any
) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(f"{served.base}/responses", **options) as socket,
    ):
        yield socket


async def ask(socket: aiohttp.ClientWebSocketResponse, **fields: Any) -> list[dict[str, Any]]:
    """Send one `response.create` and return its events to the last."""
    await socket.send_json({"type": "response.create", **fields})
    return await answer_of(socket)


async def answer_of(socket: aiohttp.ClientWebSocketResponse) -> list[dict[str, Any]]:
    events = []
    while True:
        events.append(await socket.receive_json(timeout=PATIENCE))
        if is_last(events[-1]):
            return events


def is_last(event: dict[str, Any]) -> bool:
    return event["type"] in (
        "error",
        "response.completed",
        "response.incomplete",
        "response.failed",
    )
