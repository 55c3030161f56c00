"""Clients that ask all day, and what each of their requests came to."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import aiohttp
import orjson

Outcome = Literal["answered", "refused", "away", "broken"]

PAUSE_SECONDS = 0.05
"""Between a refusal and the next request."""

ANSWER_SECONDS = 120.0
ENDINGS = ("response.completed", "response.incomplete", "response.failed", "error")
CLOSED = frozenset({1001, 1012, 1013})
"""Codes with which a gateway says that it closes a socket, and why."""


@dataclass(frozen=True, slots=True)
class Told:
    """What became of one request, `at` seconds after the day began: `answered`; `refused` with a
    reason; `away`: nobody listened; `broken`: neither."""

    kind: str
    at: float
    outcome: Outcome
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Kept:
    """A gateway that was killed `after` so many seconds of a switch, and what came of it."""

    after: float
    came_back: bool
    problem: str | None = None


@dataclass(slots=True)
class Traffic:
    """What all clients share. `away` are the spans of the day without a gateway, ends included."""

    url: str
    models: Sequence[str]
    texts: Sequence[str]
    key: str
    started: float = field(default_factory=time.monotonic)
    told: list[Told] = field(default_factory=list)
    away: list[tuple[float, float]] = field(default_factory=list)
    ended: bool = False

    @property
    def now(self) -> float:
        return time.monotonic() - self.started

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"}

    def was_away(self, told: Told) -> bool:
        return any(begin <= told.at <= end for begin, end in self.away)

    async def ask_all_day(self, client: int) -> None:
        """One request after another, of all kinds and models, until the day has ended."""
        kinds = (self._whole, self._stream, self._socket)
        turn = client
        while not self.ended:
            model = self.models[turn // len(kinds) % len(self.models)]
            text = self.texts[turn % len(self.texts)]
            ask = kinds[turn % len(kinds)]
            turn += 1
            told = await self._told(ask, {"model": model, "input": text, "max_output_tokens": 24})
            self.told.append(told)
            if told.outcome != "answered":
                await asyncio.sleep(PAUSE_SECONDS)

    async def _told(self, ask: Any, body: Mapping[str, Any]) -> Told:
        at, kind = self.now, ask.__name__.strip("_")
        try:
            async with (
                asyncio.timeout(ANSWER_SECONDS),
                aiohttp.ClientSession(headers=self.headers) as session,
            ):
                refusal = await ask(session, body)
        except aiohttp.ClientConnectorError as error:
            return Told(kind, self.now, "away", str(error))
        except aiohttp.WSServerHandshakeError as error:
            return Told(kind, at, "refused", f"handshake {error.status}")
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            return Told(kind, at, "broken", f"{type(error).__name__}: {error}")
        if refusal is None:
            return Told(kind, at, "answered")
        return Told(kind, at, "refused", refusal)

    async def _whole(self, session: aiohttp.ClientSession, body: Mapping[str, Any]) -> str | None:
        async with session.post(f"{self.url}/v1/responses", json=body) as response:
            answer = orjson.loads(await response.read())
            return None if response.status == 200 else _code(answer)

    async def _stream(self, session: aiohttp.ClientSession, body: Mapping[str, Any]) -> str | None:
        asked = {
            "model": body["model"],
            "messages": [{"role": "user", "content": body["input"]}],
            "max_tokens": body["max_output_tokens"],
            "stream": True,
        }
        async with session.post(f"{self.url}/v1/chat/completions", json=asked) as response:
            if response.status != 200:
                return _code(orjson.loads(await response.read()))
            lines = [
                line.removeprefix(b"data: ")
                for line in (await response.read()).split(b"\n")
                if line.startswith(b"data: ")
            ]
        if lines and lines[-1].strip() == b"[DONE]":
            return None
        last = orjson.loads(lines[-1]) if lines else {}
        if "error" not in last:
            raise ValueError("the stream ended without [DONE]")
        return _code(last)

    async def _socket(self, session: aiohttp.ClientSession, body: Mapping[str, Any]) -> str | None:
        address = f"{self.url}/v1/responses"
        async with session.ws_connect(address, compress=0) as socket:
            await socket.send_json({"type": "response.create", **body})
            while True:
                message = await socket.receive()
                if message.type is not aiohttp.WSMsgType.TEXT:
                    if socket.close_code in CLOSED:
                        return f"closed with {socket.close_code}"
                    raise ValueError(f"the socket was closed with {socket.close_code}")
                event = orjson.loads(message.data)
                if event["type"] in ENDINGS:
                    return _ending(event)


def _code(answer: Mapping[str, Any]) -> str:
    code: str = answer["error"]["code"]
    return code


def _ending(event: Mapping[str, Any]) -> str | None:
    if event["type"] == "error":
        return _code(event)
    if event["type"] == "response.failed":
        message: str = event["response"]["error"]["message"]
        return message
    return "cut" if event["response"]["status"] == "cancelled" else None
