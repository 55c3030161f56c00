"""Writing to one client under a deadline.

Generation never awaits a socket: the engine keeps the tokens of an answer (bounded by its length)
and hands whatever arrived since the last read over as one delta. So what may wait here is one
event per response, and a client that reads too slowly gets fewer, longer deltas until the
deadline, when it is dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Any

import orjson
from aiohttp import WSMsgType, web

SEND_DEADLINE = 10.0


class ClientGoneError(Exception):
    """The client left, or did not read within the deadline and was dropped."""


async def within_deadline(
    write: Awaitable[None], transport: asyncio.Transport | None, deadline: float
) -> None:
    """Await one write. Raises `ClientGoneError`."""
    try:
        async with asyncio.timeout(deadline):
            await write
    except TimeoutError:
        if transport is not None:
            transport.abort()
        raise ClientGoneError("did not read in time") from None
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
        frame = self._socket.send_frame(orjson.dumps(document), WSMsgType.TEXT)
        await within_deadline(frame, self._transport, self._deadline)

    def abort(self) -> None:
        """Drop the client without another word."""
        if self._transport is not None:
            self._transport.abort()
