"""What one client may take of a gateway."""

from __future__ import annotations

from dataclasses import dataclass

DEEPEST = 250
"""Levels of JSON that can be written again; see `gateway.http.fields.decode_object`."""


@dataclass(frozen=True, slots=True)
class Limits:
    """None: no limit.

    `connections` are sockets that are open at once. `message_bytes` bound a body and a message on a
    socket; `header_bytes` one header, the request line included, and `headers` their number.
    `nesting` is that of a request's JSON;
    `schema_bytes` and `schema_nesting` are those of each JSON Schema in it. `output_tokens` bound
    an answer. `requests`, `requests_per_minute` and `tokens_per_minute` are those of one key:
    answers at a time (the choices of a request count each), and requests and tokens in a minute;
    the tokens are those of prompts and answers.
    """

    connections: int = 1024
    message_bytes: int = 1 << 20
    header_bytes: int = 8190
    headers: int = 100
    nesting: int = 100
    schema_bytes: int = 64 << 10
    schema_nesting: int = 32
    output_tokens: int | None = None
    requests: int | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
