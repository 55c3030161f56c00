"""What is no request: bytes on an open socket, and bytes to a port that expects HTTP."""

from __future__ import annotations

import json
import random
import struct

from bench.raw_socket import BINARY, CLOSE, PING, TEXT, encoded

_CREATE = '{"type":"response.create","input":%s}'
_TEXTS = (
    "",
    "hello",
    "{",
    "null",
    "[1,2,3]",
    "NaN",
    '{"type":7}',
    '{"type":"response.create"}',
    '{"type":"response.destroy"}',
    '{"type":"response.cancel","response_id":"resp_none"}',
    '{"type":"response.create","input":"x","model":"another"}',
    '{"type":"response.create","input":"x","previous_response_id":"resp_none"}',
    '{"type":"response.create","input":"x","stream_id":"not a name"}',
    _CREATE % "1e400",
    _CREATE % ("1" * 5000),
    _CREATE % ("[" * 20_000),
    _CREATE % ("[" * 200 + "]" * 200),
    _CREATE % '"\\ud800"',
    _CREATE % json.dumps([{"role": "robot", "content": "x"}] * 1000),
    _CREATE % json.dumps("word " * 40_000),
    _CREATE % json.dumps([0] * 100_000),
)
_FRAMES = (
    encoded(BINARY, b"\x00\x01\x02\x03"),
    encoded(TEXT, b"\xff\xfe\xfd"),
    encoded(TEXT, b'{"type":', final=False) + encoded(TEXT, b"x"),
    encoded(0x3, b"reserved"),
    encoded(PING, bytes(126)),
    encoded(CLOSE, b"\x01"),
    encoded(TEXT, bytes((1 << 20) + 1)),
    bytes([0xFF, 0xFF, 0xFF, 0xFF]),
    bytes([0x81, 0xFF]) + struct.pack("!Q", 1 << 62),
)
_HTTP = (
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"GET / HTTP/9.9\r\n\r\n",
    b"BREW /pot HTCPCP/1.0\r\n\r\n",
    b"GET /v1/responses HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n\r\n",
    b"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n{...}",
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n\r\n{",
    b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: elsewhere.example\r\n\r\n",
)
_TEXT_SHARE = 0.7


def socket_garbage(chance: random.Random) -> bytes:
    """One frame, or something like it."""
    if chance.random() < _TEXT_SHARE:
        return encoded(TEXT, chance.choice(_TEXTS).encode())
    return chance.choice(_FRAMES)


def http_garbage(chance: random.Random) -> bytes:
    return chance.choice(_HTTP)
