"""Writing to one client under a deadline.

Generation never awaits a socket: the engine keeps the tokens of an answer (bounded by its length)
and hands whatever arrived since the last read over as one delta. So what may wait here is one
event per response, and a client that reads too slowly gets fewer, longer deltas until the
deadline, when it is dropped. A background response is read from its journal, which is bounded too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Any

import orjson
from aiohttp import WSMsgType, web

SEND_DEADLINE = 10.0
_SHORT = 16_384
"""Bytes that an empty buffer of a transport takes without a wait."""


class ClientGoneError(Exception):
    """The client left, or did not read within the deadline and was dropped."""


async def within_deadline(
    write: Awaitable[object], transport: asyncio.Transport | None, deadline: float
) -> None:
    """Await one write. Raises `ClientGoneError`."""
    try:
        async with asyncio.timeout(deadline):
            await _written(write)
    except TimeoutError:
        if transport is not None:
            transport.abort()
        raise ClientGoneError("did not read in time") from None


async def _written(write: Awaitable[object]) -> None:
    try:
        await write
    except ConnectionError as error:
        raise ClientGoneError(str(error)) from None


class Outbox:
    """Sends events over a WebSocket as text frames."""

    def __init__(
        self,
        socket: web.WebSocketResponse,
        transport: asyncio.Transport | None,
        deadline: float = SEND_DEADLINE,
    ) -> None:
        self._socket = socket
        self._transport = transport
        self._deadline = deadline

    async def send(self, document: Mapping[str, Any]) -> None:
        """Raises `ClientGoneError`."""
        await self.send_json(orjson.dumps(document))

    async def send_json(self, body: bytes) -> None:
        """Raises `ClientGoneError`."""
        frame = self._socket.send_frame(body, WSMsgType.TEXT)
        transport = self._transport
        if transport is not None and len(body) <= _SHORT and not transport.get_write_buffer_size():
            # The client has read all there was: this waits for nobody, and needs no clock.
            await _written(frame)
        else:
            await within_deadline(frame, transport, self._deadline)

    async def close(self, code: int, reason: bytes) -> None:
        """Say why, and end the connection; a client that does not read is dropped."""
        try:
            closing = self._socket.close(code=code, message=reason)
            await within_deadline(closing, self._transport, self._deadline)
        except ClientGoneError:
            return

    async def pong(self, payload: bytes) -> None:
        """Raises `ClientGoneError`."""
        await within_deadline(self._socket.pong(payload), self._transport, self._deadline)

    def leave(self) -> None:
        """Drop the client at the deadline if it has not read by then what it was sent.

        A transport that was closed waits for that without end, and no limit counts it any more.
        """
        transport = self._transport
        if transport is not None and transport.get_write_buffer_size() > 0:
            asyncio.get_running_loop().call_later(self._deadline, transport.abort)

    def abort(self) -> None:
        """Drop the client without another word."""
        if self._transport is not None:
            self._transport.abort()
