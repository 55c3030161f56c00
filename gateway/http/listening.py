"""The end of listening, without resetting connections that nobody has looked at yet.

Connections wait in a queue of the kernel until they are accepted; closing the socket resets those
that are in it. Where the socket was passed by a service manager, which holds it too, they wait for
the next gateway instead.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from aiohttp import web

LAST_SECONDS = 0.2
"""For the requests of connections that were made last."""

HANDSHAKE_SECONDS = 2.0
"""For their handshakes: who connected and says nothing holds up no stop."""


@dataclass(frozen=True, slots=True)
class Listeners:
    """Sockets that nobody else holds, with what makes their connections secure."""

    sockets: Sequence[socket.socket]
    context: ssl.SSLContext | None = None


async def stop_listening(runner: web.AppRunner, own: Listeners) -> None:
    """Accept nobody any more. Who connected before has yet to ask, and is answered."""
    queues = [each.dup() for each in own.sockets]
    for site in list(runner.sites):
        await site.stop()
    # Nothing is awaited between the end of a queue and its closing.
    waiting = [connection for queue in queues for connection in _ended(queue)]
    loop, server = asyncio.get_running_loop(), runner.server
    assert server is not None, "it was set up"
    handshake = None if own.context is None else HANDSHAKE_SECONDS
    made = (
        loop.connect_accepted_socket(server, each, ssl=own.context, ssl_handshake_timeout=handshake)
        for each in waiting
    )
    # One whose handshake fails is nobody's request.
    await asyncio.gather(asyncio.sleep(LAST_SECONDS), *made, return_exceptions=True)


def _ended(queue: socket.socket) -> Iterator[socket.socket]:
    """Those in the queue, which is closed behind the last one."""
    with queue:
        queue.setblocking(False)
        while True:
            try:
                connection, _ = queue.accept()
            except ConnectionAbortedError:
                continue  # it was gone already
            except OSError:
                return  # none is left, or no more can be had
            connection.setblocking(False)
            yield connection
