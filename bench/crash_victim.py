"""A gateway that is killed and started again, what it keeps meanwhile, and who asks it."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from bench.gateway_process import free_port
from models.errors import UserError

KEY = "a-key-of-the-benchmark"
OWNER = "bench"

_START_SECONDS = 600.0
_ANSWER_SECONDS = 120.0
_END_SECONDS = 60.0
_HEADERS = {"Authorization": f"Bearer {KEY}"}


@dataclass(frozen=True, slots=True)
class Place:
    """What a gateway keeps between two lives, below `root`, and what it is started with. `names`
    are those of its packages, the default first: `package` and `second`."""

    root: Path
    package: Path
    second: Path
    names: tuple[str, str]
    flags: Sequence[str] = ()

    @property
    def cache(self) -> Path:
        return self.root / "cache"

    @property
    def calibrations(self) -> Path:
        return self.cache / "calibration"

    @property
    def texts(self) -> Path:
        return self.root / "ngrams"

    @property
    def keys(self) -> Path:
        return self.root / "keys"

    def prepare(self) -> None:
        self.keys.write_text(f"{OWNER}:{KEY}\n")
        self.keys.chmod(0o600)


@dataclass(slots=True)
class Victim:
    """A process of the gateway. `lines` are what it said on either stream so far."""

    process: asyncio.subprocess.Process
    url: str
    lines: list[str] = field(default_factory=list)
    _ended: bool = False
    _said: asyncio.Condition = field(default_factory=asyncio.Condition)
    _tasks: set[asyncio.Task[Any]] = field(default_factory=set)
    _session: aiohttp.ClientSession | None = None

    @classmethod
    async def start(cls, place: Place) -> Victim:
        port = free_port()
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith("OUTPACE_")
        }
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "gateway", "serve", "--port", str(port)),
            *("--package", str(place.package), "--package", str(place.second)),
            *("--api-keys-file", str(place.keys), "--admins", OWNER),
            *("--ngram-store", str(place.texts), *place.flags),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**kept, "OUTPACE_CACHE": str(place.cache)},
        )
        victim = cls(process, f"http://127.0.0.1:{port}")
        victim.keep(victim._read())
        return victim

    @property
    def session(self) -> aiohttp.ClientSession:
        """Its clients' one; it is open until the gateway is dead."""
        if self._session is None:
            self._session = aiohttp.ClientSession(headers=_HEADERS)
        return self._session

    def has_said(self, *beginnings: str) -> bool:
        told = (line.removeprefix("outpace: ") for line in self.lines)
        return any(line.startswith(beginnings) for line in told)

    async def until_said(self, *beginnings: str) -> None:
        """Until a line begins with one of them. Raises `UserError` where the gateway ends first."""
        async with asyncio.timeout(_START_SECONDS), self._said:
            await self._said.wait_for(lambda: self.has_said(*beginnings) or self._ended)
        if not self.has_said(*beginnings):
            last = "\n".join(self.lines[-20:])
            raise UserError(f"the gateway ended. Its last words:\n{last}", code="gateway_failed")

    def keep(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Have `work` done until the gateway is dead; what it fails with then is expected."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        return task

    async def end(self) -> int:
        """Told to stop, as a service manager does; the status with which it ends."""
        with suppress(ProcessLookupError):
            self.process.terminate()
        try:
            async with asyncio.timeout(_END_SECONDS):
                return await self.process.wait()
        except TimeoutError:
            raise UserError("it does not end when it is told to", code="gateway_failed") from None
        finally:
            await self.kill()

    async def kill(self) -> None:
        """Its clients see it die; nothing of them is left."""
        with suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._session is not None:
            await self._session.close()

    async def _read(self) -> None:
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            async with self._said:
                self.lines.append(line.decode(errors="replace").rstrip())
                self._said.notify_all()
        async with self._said:
            self._ended = True
            self._said.notify_all()


class Asking:
    """A streamed answer that has begun: its prompt is being read, or it is said. `deltas` are those
    that came so far; `ended` with the stream."""

    def __init__(self, victim: Victim, response: aiohttp.ClientResponse) -> None:
        self.deltas = 0
        self.ended = False
        self._changed = asyncio.Condition()
        self._reading = victim.keep(self._read(response))

    async def said(self, deltas: int, seconds: float) -> bool:
        """Whether it says so many, or ends, within so many seconds."""
        return await self._comes_to(lambda: self.deltas >= deltas or self.ended, seconds)

    async def ends(self, seconds: float) -> bool:
        """Whether it does within so many seconds."""
        return await self._comes_to(lambda: self.ended, seconds)

    async def leave(self) -> None:
        """As a client does that has heard enough."""
        self._reading.cancel()
        await asyncio.wait([self._reading])

    async def _read(self, response: aiohttp.ClientResponse) -> None:
        try:
            async for line in response.content:
                if line.startswith(b"event: response.output_text.delta"):
                    self.deltas += 1
                    await self._notify()
        finally:
            response.close()
            self.ended = True
            await self._notify()

    async def _comes_to(self, wanted: Callable[[], bool], seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds), self._changed:
                await self._changed.wait_for(wanted)
        except TimeoutError:
            return wanted()
        return True

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()


async def started(place: Place) -> Victim:
    victim = await Victim.start(place)
    await victim.until_said("ready on ")
    return victim


async def ask(victim: Victim, text: str, *, background: bool = False) -> Asking:
    """Raises `UserError` with the code that the gateway refuses it with."""
    body = {
        "input": text,
        "max_output_tokens": 256,
        "stream": True,
        "user": OWNER,
        "background": background,
    }
    response = await victim.session.post(f"{victim.url}/v1/responses", json=body)
    if response.status != 200:
        refusal = (await response.json())["error"]
        raise UserError(f"refused: {refusal['message']}", code=refusal["code"])
    return Asking(victim, response)


async def answered(victim: Victim, text: str, tokens: int, model: str | None = None) -> str:
    """A greedy answer's text, of a user whose n-grams are kept. Raises `UserError`."""
    body = {"input": text, "max_output_tokens": tokens, "temperature": 0, "user": OWNER}
    answer = await posted(victim, "responses", body if model is None else {**body, "model": model})
    return "".join(part["text"] for item in answer["output"] for part in item["content"])


async def posted(victim: Victim, path: str, body: Mapping[str, object]) -> dict[str, Any]:
    """Raises `UserError` where it is refused, or not answered."""
    try:
        async with (
            asyncio.timeout(_ANSWER_SECONDS),
            victim.session.post(f"{victim.url}/v1/{path}", json=body) as response,
        ):
            answer: dict[str, Any] = await response.json()
    except (aiohttp.ClientError, TimeoutError) as error:
        raise UserError(f"no answer: {error!r}", code="gateway_failed") from None
    if response.status != 200:
        raise UserError(f"refused: {answer}", code="gateway_failed")
    return answer
