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

PAUSE_SECONDS = 0.2
"""Between a refusal and the next request."""

ANSWER_SECONDS = 120.0
ENDINGS = ("response.completed", "response.incomplete", "response.failed", "error")
CLOSED = frozenset({1001, 1012, 1013})
"""Codes with which a gateway says that it closes a socket, and why."""

BUSY = frozenset({"loading", "queue_full", "queue_timeout", "closed with 1013"})
"""Reasons of a gateway that has much to do: they may come at any time of the day."""

NO_KEY = frozenset({"invalid_api_key", "handshake 401"})
"""Reasons of who was refused for the key."""

FAILED = "failed: "
LEAVING = ("draining", "handshake 503", "closed with 10", "cut", FAILED)
"""Beginnings of what a gateway says that stops, or is not back yet."""


@dataclass(frozen=True, slots=True)
class Told:
    """What became of one request, asked `at` seconds after the day began and ended so many
    `seconds` later: `answered`; `refused` with a reason; `away`: nobody listened; `broken`:
    neither."""

    kind: str
    at: float
    outcome: Outcome
    reason: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Kept:
    """A gateway that was killed `after` so many seconds of a switch, and whether the next one
    served both packages."""

    after: float
    came_back: bool
    problem: str | None = None


@dataclass(slots=True)
class Traffic:
    """What all clients share. Spans of the day, ends included: `away` without a gateway that takes
    requests, `unkeyed` in which the clients' key is none any more."""

    url: str
    models: Sequence[str]
    texts: Sequence[str]
    key: str
    started: float = field(default_factory=time.monotonic)
    told: list[Told] = field(default_factory=list)
    away: list[tuple[float, float]] = field(default_factory=list)
    unkeyed: list[tuple[float, float]] = field(default_factory=list)
    ended: bool = False

    @property
    def now(self) -> float:
        return time.monotonic() - self.started

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"}

    def is_explained(self, told: Told) -> bool:
        """Whether it was turned away for something that was done at that time."""
        if told.reason in BUSY:
            return True
        if told.reason in NO_KEY:
            return _within(self.unkeyed, told)
        leaving = told.outcome == "away" or told.reason.startswith(LEAVING)
        return leaving and _within(self.away, told)

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
            return Told(kind, at, "away", str(error), self.now - at)
        except aiohttp.WSServerHandshakeError as error:
            return Told(kind, at, "refused", f"handshake {error.status}", self.now - at)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            return Told(kind, at, "broken", f"{type(error).__name__}: {error}", self.now - at)
        outcome: Outcome = "answered" if refusal is None else "refused"
        return Told(kind, at, outcome, refusal or "", self.now - at)

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


def _within(spans: Sequence[tuple[float, float]], told: Told) -> bool:
    return any(begin <= told.at + told.seconds and told.at <= end for begin, end in spans)


def _code(answer: Mapping[str, Any]) -> str:
    error = answer.get("error")
    if not isinstance(error, dict) or not isinstance(error.get("code"), str):
        raise ValueError("a refusal without a code")
    code: str = error["code"]
    return code


def _ending(event: Mapping[str, Any]) -> str | None:
    if event["type"] == "error":
        return _code(event)
    if event["type"] == "response.failed":
        return FAILED + str(event["response"]["error"]["message"])
    return "cut" if event["response"]["status"] == "cancelled" else None
