"""Frames and requests that no client sends: the connection may go, the gateway stays."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.raw_socket import CLOSE, PING, PONG, TEXT, encoded, opened
from gateway.limits import Limits
from tests.fake_engine import FakeEngine
from tests.fuzz_support import FUZZ, still_answers
from tests.http_serving import until
from tests.server_thread import ServerThread, server_thread
from tests.server_thread import given as given_engine

MAX_MESSAGE = Limits().message_bytes
CREATE = b'{"type":"response.create","input":"Hi"}'
QUIET = 0.03


@pytest.fixture(scope="module")
def server() -> Iterator[ServerThread]:
    with server_thread(lambda: given_engine(FakeEngine("abc"))) as started:
        yield started


@st.composite
def frames(draw: st.DrawFn) -> bytes:
    """A few frames in a row, most with something wrong, the last one perhaps cut off."""
    data = b"".join(draw(_frame()) for _ in range(draw(st.integers(1, 5))))
    return data[: draw(st.integers(1, len(data)))] if draw(st.booleans()) else data


@st.composite
def _frame(draw: st.DrawFn) -> bytes:
    payload = draw(
        st.one_of(
            st.just(CREATE),
            st.binary(max_size=200),
            st.just(b"\xff\xfe"),
            st.just(CREATE[: draw(st.integers(0, len(CREATE)))]),
            st.just(struct.pack("!H", draw(st.integers(0, 0xFFFF))) + b"bye"),
        )
    )
    final, masked = draw(st.booleans()), draw(st.integers(0, 9)) > 0
    frame = bytearray(encoded(draw(st.integers(0, 15)), payload, final=final, masked=masked))
    if draw(st.integers(0, 4)) == 0:
        frame[0] |= draw(st.integers(0, 7)) << 4  # reserved bits
    if draw(st.integers(0, 4)) == 0:
        # A length that is another than the payload's.
        length = draw(st.sampled_from((0, 1, 125, 1 << 20, 1 << 40, (1 << 64) - 1)))
        frame[1:2] = bytes([0xFF]) + struct.pack("!Q", length)
    return bytes(frame)


async def send_bytes(server: ServerThread, data: bytes) -> None:
    """Then whatever comes is read until it is quiet, and the client vanishes."""
    async with opened(server.served.url) as client:
        try:
            await client.raw(data)
            while True:
                await asyncio.wait_for(client.receive(), QUIET)
        except (TimeoutError, EOFError, ConnectionError):
            pass
    await until(lambda: server.connections() == 0)


@FUZZ
@given(frames())
def test_frames(server: ServerThread, data: bytes) -> None:
    server.run(send_bytes(server, data))
    assert server.take_errors() == []
    server.run(still_answers(server))


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """HTTP with a piece of it overwritten."""
    body = b'{"input":"Hi"}'
    head = (
        b"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n"
    )
    lines = (head % len(body)).split(b"\r\n")
    for _ in range(draw(st.integers(0, 2))):
        del lines[draw(st.integers(0, len(lines) - 1))]
    data = b"\r\n".join(lines) + body
    for _ in range(draw(st.integers(0, 3))):
        start = draw(st.integers(0, len(data)))
        new = draw(st.one_of(st.binary(max_size=12), st.sampled_from((b"\r\n", b"\x00", b": "))))
        data = data[:start] + new + data[start + draw(st.integers(0, 8)) :]
    return data


async def send_http(server: ServerThread, data: bytes) -> bytes:
    host, _, port = server.served.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    said = b""
    try:
        writer.write(data)
        await writer.drain()
        while piece := await asyncio.wait_for(reader.read(65536), QUIET):
            said += piece
    except (TimeoutError, ConnectionError):
        pass
    writer.transport.abort()
    await until(lambda: server.connections() == 0)
    return said


@FUZZ
@given(requests())
def test_requests(server: ServerThread, data: bytes) -> None:
    said = server.run(send_http(server, data))
    assert not said.startswith(b"HTTP/1.1 5"), said
    # That a request is no HTTP is about the client, and aiohttp's to say.
    assert [line for line in server.take_errors() if not line.startswith("aiohttp.server")] == []
    server.run(still_answers(server))


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        ([encoded(0x2, CREATE)], None),
        ([encoded(TEXT, CREATE[:9], final=False), encoded(0x0, CREATE[9:])], None),
        (
            [
                encoded(TEXT, CREATE[:9], final=False),
                encoded(PING, b"between"),
                encoded(0x0, CREATE[9:]),
            ],
            None,
        ),
        ([encoded(PING, bytes(125))], None),
        ([encoded(TEXT, "\u2603".encode())], None),
        ([encoded(TEXT, b"\xff")], 1007),
        ([encoded(TEXT, b"\xe2\x98", final=False), encoded(0x0, b"x")], 1007),
        ([encoded(PING, bytes(126))], 1002),
        ([encoded(PING, b"x", final=False)], 1002),
        ([encoded(0x3, b"x")], 1002),
        ([encoded(0x0, b"x")], 1002),
        ([encoded(TEXT, b"x", final=False), encoded(TEXT, b"x")], 1002),
        ([encoded(CLOSE, b"\x00")], 1002),
        ([encoded(CLOSE, struct.pack("!H", 1000) + b"\xff")], 1007),
        ([encoded(TEXT, bytes(MAX_MESSAGE + 1))], 1009),
        ([encoded(TEXT, bytes(MAX_MESSAGE), final=False), encoded(0x0, b"xx")], 1009),
        ([bytes([0x81, 0xFF]) + struct.pack("!Q", 1 << 62)], 1009),
    ],
)
def test_what_a_frame_may_be(server: ServerThread, sent: list[bytes], code: int | None) -> None:
    """None: the connection stays, and answers."""

    async def talk() -> None:
        async with opened(server.served.url) as client:
            for frame in sent:
                await client.raw(frame)
            if code is None:
                await client.raw(encoded(PING, b"last"))
                while await client.receive() != (PONG, b"last"):
                    pass
                return
            frame = await client.receive()
            while frame[0] != CLOSE:
                frame = await client.receive()
            assert struct.unpack("!H", frame[1][:2]) == (code,)
        await until(lambda: server.connections() == 0)

    server.run(talk())
    assert server.take_errors() == []
    server.run(still_answers(server))


def test_a_frame_that_never_ends_holds_nothing_but_its_connection(server: ServerThread) -> None:
    async def hold() -> None:
        async with opened(server.served.url) as client:
            await client.raw(encoded(TEXT, bytes(60_000), final=False))
            await client.raw(bytes([0x80, 0xFF]) + struct.pack("!Q", 500_000) + bytes(4))
            await still_answers(server)
        await until(lambda: server.connections() == 0)

    server.run(hold())
