"""The socket itself: its settings, and which of a client's frames a handler is told of."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from aiohttp import WSCloseCode, WSMessage, WSMsgType, web
from aiohttp.abc import AbstractStreamWriter

from gateway.http.outbox import Outbox

HEARTBEAT = 20.0
WRITER_LIMIT = 16 << 10
CLOSING_SECONDS = 5.0
"""For what is still unsent, and once more for the client's own word that it closes."""

_DATA = (WSMsgType.TEXT, WSMsgType.BINARY)


class Socket(web.WebSocketResponse):
    """Is closed within a bounded time.

    aiohttp itself would wait without end for a client that does not read, wherever it closes: on a
    broken frame, too, and then it pings no more.
    """

    _transport: asyncio.Transport | None = None

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter:
        self._transport = request.transport
        return await super().prepare(request)

    async def close(
        self, *, code: int = WSCloseCode.OK, message: bytes = b"", drain: bool = True
    ) -> bool:
        try:
            async with asyncio.timeout(2 * CLOSING_SECONDS):
                return await super().close(code=code, message=message, drain=drain)
        except TimeoutError:
            if self._transport is not None:
                self._transport.abort()
            return True


def make_socket(protocols: Iterable[str], message_bytes: int) -> Socket:
    """Not connected yet. Read it by `next_message`, which answers pings."""
    return Socket(
        timeout=CLOSING_SECONDS,
        autoping=False,
        compress=False,
        max_msg_size=message_bytes,
        heartbeat=HEARTBEAT,
        writer_limit=WRITER_LIMIT,
        protocols=tuple(protocols),
    )


async def next_message(socket: web.WebSocketResponse, outbox: Outbox) -> WSMessage | None:
    """The next one with data; None once the client has left or was closed.

    Pings are answered under the outbox's deadline. aiohttp's own answers have none: whoever pings
    and does not read would keep its connection for ever. Raises `ClientGoneError`.
    """
    while True:
        message = await socket.receive()
        if message.type in _DATA:
            return message
        if message.type is WSMsgType.PING:
            await outbox.pong(message.data)
        elif message.type is not WSMsgType.PONG:
            return None
