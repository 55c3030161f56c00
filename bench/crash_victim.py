"""A gateway that is killed and started again, and the moments at which that happens."""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import aiohttp

from bench.gateway_process import free_port
from models.drafters.store_file import MAGIC, read_texts
from models.errors import UserError

KEY = "a-key-of-the-benchmark"
LOADING = ("checking ", "loading ", "memory needed", "graphs loaded", "bitwise", "run times")
"""Beginnings of the lines that a gateway says while it loads, in their order."""

_START_SECONDS = 600.0
_ANSWER_SECONDS = 120.0
_MOST_DELAY = 0.3


@dataclass(slots=True)
class Place:
    """What a gateway keeps between two lives, below `root`, and what it is started with."""

    root: Path
    package: Path
    flags: Sequence[str] = ()

    @property
    def calibrations(self) -> Path:
        return self.root / "cache" / "calibration"

    @property
    def texts(self) -> Path:
        return self.root / "ngrams"

    @property
    def keys(self) -> Path:
        return self.root / "keys"

    def prepare(self) -> None:
        self.keys.write_text(f"bench:{KEY}\n")
        self.keys.chmod(0o600)


@dataclass(slots=True)
class Victim:
    """A process of the gateway. `lines` are what it said on either stream so far."""

    process: asyncio.subprocess.Process
    url: str
    lines: list[str] = field(default_factory=list)
    _ended: bool = False
    _said: asyncio.Condition = field(default_factory=asyncio.Condition)
    _reading: asyncio.Task[None] | None = None

    @classmethod
    async def start(cls, place: Place) -> Victim:
        port = free_port()
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith("OUTPACE_")
        }
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "gateway", "serve", "--port", str(port)),
            *("--package", str(place.package), "--api-keys-file", str(place.keys)),
            *("--ngram-store", str(place.texts), *place.flags),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**kept, "OUTPACE_CACHE": str(place.root / "cache")},
        )
        victim = cls(process, f"http://127.0.0.1:{port}")
        victim._reading = asyncio.create_task(victim._read())
        return victim

    async def until_said(self, *beginnings: str) -> None:
        """Until a line begins with one of them. Raises `UserError` where the gateway ends first."""

        def said() -> bool:
            told = (line.removeprefix("outpace: ") for line in self.lines)
            return any(line.startswith(beginnings) for line in told)

        async with asyncio.timeout(_START_SECONDS), self._said:
            await self._said.wait_for(lambda: said() or self._ended)
        if not said():
            last = "\n".join(self.lines[-20:])
            raise UserError(f"the gateway ended. Its last words:\n{last}", code="gateway_failed")

    async def kill(self) -> None:
        with suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()
        if self._reading is not None:
            await self._reading

    async def _read(self) -> None:
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            async with self._said:
                self.lines.append(line.decode(errors="replace").rstrip())
                self._said.notify_all()
        async with self._said:
            self._ended = True
            self._said.notify_all()


async def answered(url: str, text: str, tokens: int) -> str:
    """A greedy answer's text, from a user whose n-grams are kept. Raises `UserError`."""
    body = {"input": text, "max_output_tokens": tokens, "temperature": 0, "user": "bench"}
    try:
        async with (
            asyncio.timeout(_ANSWER_SECONDS),
            aiohttp.ClientSession(headers=_HEADERS) as session,
            session.post(f"{url}/v1/responses", json=body) as response,
        ):
            answer: dict[str, Any] = await response.json()
    except (aiohttp.ClientError, TimeoutError) as error:
        raise UserError(f"no answer: {error!r}", code="gateway_failed") from None
    if response.status != 200:
        raise UserError(f"refused: {answer}", code="gateway_failed")
    return "".join(part["text"] for item in answer["output"] for part in item["content"])


_HEADERS = {"Authorization": f"Bearer {KEY}"}
Moment = Callable[[Place, random.Random, Sequence[str]], Awaitable[Victim]]
"""Brings a gateway to a moment in which it is to be killed: it has some of the texts to ask."""


async def in_load(place: Place, chance: random.Random, texts: Sequence[str]) -> Victim:
    """At a step of loading; every other time it has to calibrate, and to keep that, first."""
    if chance.random() < 0.5:
        for kept in place.calibrations.glob("*.json"):
            kept.unlink()
    victim = await Victim.start(place)
    await victim.until_said(chance.choice(LOADING), "ready on ")
    await asyncio.sleep(chance.random() * _MOST_DELAY)
    return victim


async def in_prefill(place: Place, chance: random.Random, texts: Sequence[str]) -> Victim:
    victim = await started(place)
    asking = await _asking(victim, " ".join(chance.sample(list(texts), len(texts))) * 2)
    await asyncio.sleep(chance.random() * _MOST_DELAY)
    asking.close()
    return victim


async def in_stream(place: Place, chance: random.Random, texts: Sequence[str]) -> Victim:
    """With several answers streaming, one of them in the background."""
    victim = await started(place)
    first = await _asking(victim, chance.choice(list(texts)))
    others = [await _asking(victim, text, background=True) for text in texts[:2]]
    for _ in range(chance.randint(1, 12)):
        await first.delta()
    await asyncio.sleep(chance.random() * 0.05)
    for each in (first, *others):
        each.close()
    return victim


MOMENTS: Mapping[str, Moment] = MappingProxyType(
    {"load": in_load, "prefill": in_prefill, "stream": in_stream}
)


async def started(place: Place) -> Victim:
    victim = await Victim.start(place)
    await victim.until_said("ready on ")
    return victim


@dataclass(frozen=True, slots=True)
class _Asking:
    session: aiohttp.ClientSession
    response: aiohttp.ClientResponse

    async def delta(self) -> None:
        """Until a delta has come, or the answer has ended."""
        async with asyncio.timeout(_ANSWER_SECONDS):
            async for line in self.response.content:
                if line.startswith(b"event: response.output_text.delta"):
                    return

    def close(self) -> None:
        self.response.close()
        # The connector closes with the loop's next turn; the gateway is killed before it notices.
        asyncio.get_running_loop().create_task(self.session.close())


async def _asking(victim: Victim, text: str, *, background: bool = False) -> _Asking:
    """A streamed answer that has begun: its prompt is being read."""
    body = {"input": text, "max_output_tokens": 256, "stream": True, "user": "bench"}
    session = aiohttp.ClientSession(headers=_HEADERS)
    response = await session.post(
        f"{victim.url}/v1/responses", json={**body, "background": background}
    )
    return _Asking(session, response)


def half_written(place: Place) -> list[str]:
    """What a reader of the files that are kept would stumble over, by name."""
    problems = []
    for path in place.calibrations.glob("*.json"):
        try:
            if not json.loads(path.read_bytes())["points"]:
                problems.append(f"{path.name} is empty")
        except (ValueError, KeyError, TypeError):
            problems.append(f"{path.name} is cut off")
    if place.keys.read_text() != f"bench:{KEY}\n":
        problems.append("the file of keys was changed")
    return problems


def torn(place: Place) -> list[str]:
    """Files of n-grams with something behind their last whole record, once a gateway has written
    to them again."""
    problems = []
    for path in place.texts.glob("*.ngrams"):
        raw = path.read_bytes()
        owner = raw.removeprefix(MAGIC).partition(b"\n")[0].decode(errors="replace")
        _, whole = read_texts(path, owner)
        if whole != len(raw):
            problems.append(f"{path.name} has {len(raw) - whole} bytes that are no text")
    return problems
