"""A service manager's socket, for tests."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(slots=True)
class Listener:
    """`address` is what `NOTIFY_SOCKET` holds; `messages` are those that were read so far."""

    socket: socket.socket
    address: str
    messages: list[list[str]] = field(default_factory=list)

    def read(self) -> list[str]:
        """The next message, as its lines."""
        lines = self.socket.recv(65536).decode().split("\n")
        self.messages.append(lines)
        return lines

    def empty(self) -> bool:
        self.socket.setblocking(False)
        try:
            self.read()
        except BlockingIOError:
            return True
        finally:
            self.socket.settimeout(20)
        return False

    async def until(self, wanted: Callable[[list[str]], bool]) -> list[str]:
        """The first message from here on that is `wanted`."""
        self.socket.setblocking(False)
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(60):
            while True:
                lines = (await loop.sock_recv(self.socket, 65536)).decode().split("\n")
                self.messages.append(lines)
                if wanted(lines):
                    return lines

    async def until_line(self, line: str) -> list[str]:
        return await self.until(lambda lines: line in lines)


@contextmanager
def listening(address: str) -> Iterator[Listener]:
    """At a path, or, with `@` in front, in the abstract namespace."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind("\0" + address[1:] if address.startswith("@") else address)
        receiver.settimeout(20)
        yield Listener(receiver, address)
