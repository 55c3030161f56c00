"""Server-sent events to one client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from aiohttp import hdrs, web

from gateway.http.outbox import SEND_DEADLINE, ClientGoneError, within_deadline

KEEP_ALIVE = 15.0
"""Seconds of silence after which a comment shows that the stream lives."""

HEADERS = {
    hdrs.CONTENT_TYPE: "text/event-stream; charset=utf-8",
    hdrs.CACHE_CONTROL: "no-cache",
    "X-Accel-Buffering": "no",
}


@dataclass(frozen=True, slots=True)
class Streaming:
    """`send_deadline` drops a client that does not read for so long; `keep_alive` is after how much
    silence a stream shows that it lives. Both in seconds."""

    send_deadline: float = SEND_DEADLINE
    keep_alive: float = KEEP_ALIVE

    def to(self, request: web.Request) -> EventStream:
        return EventStream(request, self.send_deadline, self.keep_alive)


class EventStream:
    """A response whose body are events, each written within `deadline` seconds."""

    def __init__(
        self, request: web.Request, deadline: float, keep_alive: float = KEEP_ALIVE
    ) -> None:
        self._request = request
        self._deadline = deadline
        self._keep_alive = keep_alive
        self._written = 0.0
        self.response = web.StreamResponse(headers=HEADERS)

    async def open(self) -> None:
        """Send the head: from here on errors are events. Raises `ClientGoneError`."""
        self._written = asyncio.get_running_loop().time()
        try:
            await self.response.prepare(self._request)
        except ConnectionError as error:
            raise ClientGoneError(str(error)) from None

    @asynccontextmanager
    async def kept_alive(self) -> AsyncIterator[None]:
        """While nothing is sent within the block comments are, so that neither proxies nor clients
        give up on a request that waits."""
        beating = asyncio.create_task(self._beat(), name="keep-alive")
        try:
            yield
        finally:
            beating.cancel()
            await asyncio.wait([beating])

    async def send(self, data: bytes, event: str | None = None) -> None:
        """`data` is one line. Raises `ClientGoneError`."""
        name = b"" if event is None else b"event: %b\n" % event.encode()
        await self._write(b"%bdata: %b\n\n" % (name, data))

    async def _write(self, data: bytes) -> None:
        self._written = asyncio.get_running_loop().time()
        await within_deadline(self.response.write(data), self._request.transport, self._deadline)

    async def _beat(self) -> None:
        loop = asyncio.get_running_loop()
        with suppress(ClientGoneError):
            while True:
                await asyncio.sleep(self._written + self._keep_alive - loop.time())
                if loop.time() >= self._written + self._keep_alive:
                    await self._write(b": keep-alive\n\n")
