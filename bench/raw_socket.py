"""A WebSocket client that sends whatever it is told to, right or wrong, and reads when asked."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

TEXT, BINARY, CLOSE, PING, PONG = 0x1, 0x2, 0x8, 0x9, 0xA
_SECONDS = 10.0


class RawSocket:
    """Made by `connect` or `opened`; ended by `reset`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def text(self, text: str) -> None:
        await self.frame(TEXT, text.encode("utf-8", "surrogatepass"))

    async def ping(self, payload: bytes, times: int = 1) -> None:
        await self.raw(encoded(PING, payload) * times)

    async def frame(self, opcode: int, payload: bytes, *, final: bool = True) -> None:
        await self.raw(encoded(opcode, payload, final=final))

    async def raw(self, data: bytes) -> None:
        """Raises `ConnectionError` where the other side has reset the connection."""
        self._writer.write(data)
        await self._writer.drain()

    async def receive(self, seconds: float | None = _SECONDS) -> tuple[int, bytes]:
        """Opcode and payload of the next frame.

        Raises `EOFError` (or `ConnectionError`) at the end of the connection, and `TimeoutError`.
        """
        async with asyncio.timeout(seconds):
            first, second = await self._reader.readexactly(2)
            length = second & 0x7F
            if length == 126:
                (length,) = struct.unpack("!H", await self._reader.readexactly(2))
            elif length == 127:
                (length,) = struct.unpack("!Q", await self._reader.readexactly(8))
            return first & 0x0F, await self._reader.readexactly(length)

    async def reset(self) -> None:
        """Vanish, as a killed process does."""
        handle = self._writer.get_extra_info("socket")
        if handle is not None:
            with suppress(OSError):
                linger = struct.pack("ii", 1, 0)
                handle.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self._writer.transport.abort()
        with suppress(ConnectionError):
            await self._writer.wait_closed()


async def connect(
    url: str, path: str = "/v1/responses", receive_buffer: int | None = None
) -> RawSocket:
    """Upgraded. With a `receive_buffer`, in bytes, nothing is ever read.

    Raises `ConnectionError`, `EOFError` or `TimeoutError` where there is no upgrade.
    """
    reader, writer = await stream_to(url, receive_buffer)
    client = RawSocket(reader, writer)
    try:
        writer.write(handshake(url, path))
        async with asyncio.timeout(_SECONDS):
            head = await reader.readuntil(b"\r\n\r\n")
    except BaseException:
        await client.reset()
        raise
    if not head.startswith(b"HTTP/1.1 101"):
        await client.reset()
        raise ConnectionError(f"not upgraded: {head.splitlines()[0]!r}")
    if receive_buffer is not None:
        writer.transport.pause_reading()  # type: ignore[attr-defined]
    return client


@asynccontextmanager
async def opened(
    url: str, path: str = "/v1/responses", receive_buffer: int | None = None
) -> AsyncIterator[RawSocket]:
    """`connect`; the client vanishes on leaving."""
    client = await connect(url, path, receive_buffer)
    try:
        yield client
    finally:
        await client.reset()


async def stream_to(
    url: str, receive_buffer: int | None = None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to the origin `url`, on which nothing was said yet."""
    host, _, port = url.removeprefix("http://").partition(":")
    handle = socket.socket()
    if receive_buffer is not None:
        handle.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    handle.setblocking(False)
    try:
        await asyncio.get_running_loop().sock_connect(handle, (host, int(port)))
    except BaseException:
        handle.close()
        raise
    return await asyncio.open_connection(sock=handle)


def handshake(url: str, path: str = "/v1/responses") -> bytes:
    host = url.removeprefix("http://")
    return (
        f"GET {path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\n"
        "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    ).encode()


def encoded(opcode: int, payload: bytes, *, final: bool = True, masked: bool = True) -> bytes:
    """A frame; its mask, where it has one, is of zeros."""
    mask = 0x80 if masked else 0
    length = len(payload)
    if length < 126:
        size = bytes([mask | length])
    elif length < 1 << 16:
        size = bytes([mask | 126]) + struct.pack("!H", length)
    else:
        size = bytes([mask | 127]) + struct.pack("!Q", length)
    head = bytes([(0x80 if final else 0) | opcode]) + size
    return head + (bytes(4) if masked else b"") + payload
