"""What operators do in the course of a day, one thing after another."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any

import aiohttp

from bench.day_clients import ANSWER_SECONDS, NO_KEY, Kept, Traffic
from bench.gateway_process import GatewayProcess, free_port, running_gateway
from bench.setup import Setup, progress
from models.errors import UserError
from models.package import load_package

NAME = "operator"
KEYS = ("the-key-of-the-morning", "the-key-of-the-evening")
MOST_PAUSE, LEAST_PAUSE = 0.1, 0.01
"""Shares of the day between two events. What loading takes is taken off the pauses."""


_HELLO: Mapping[str, object] = MappingProxyType({"input": "Say hello.", "max_output_tokens": 8})


@dataclass(frozen=True, slots=True)
class Event:
    """Something that was done `at` so many seconds of the day; `problem` None: as it should be."""

    name: str
    at: float
    seconds: float
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Act:
    """`loads`: whether a package is loaded for it."""

    name: str
    do: Callable[[], Awaitable[object]]
    loads: bool = True


class Day:
    """One gateway with two packages, its clients, and its operator.

    It takes about `seconds`: more only where loading alone does.
    """

    def __init__(self, setup: Setup, second: Path, directory: Path, seconds: float) -> None:
        self._setup = setup
        self._keys = directory / "keys"
        self._keys.write_text(f"{NAME}:{KEYS[0]}\n")
        self._seconds = seconds
        self._load_seconds = 0.0
        self._stack = AsyncExitStack()
        self._gateway: GatewayProcess | None = None
        self._names = (setup.package.manifest.name, load_package(second).manifest.name)
        self._settings: dict[str, object] = {
            "port": free_port(),
            "packages": second,
            "api_keys_file": self._keys,
            "admins": NAME,
            "drain_seconds": 10,
            "load_seconds": 120,
        }
        texts = [question.turns[0][:120] for question in setup.questions] or ["Say hello."]
        url = f"http://127.0.0.1:{self._settings['port']}"
        self.traffic = Traffic(url, self._names, texts, KEYS[0])
        self.events: list[Event] = []

    async def live(self, clients: int) -> None:
        acts = self._acts()
        try:
            begun = time.monotonic()
            await self._start()
            self._load_seconds = time.monotonic() - begun
            self.traffic.started = time.monotonic()
            async with asyncio.TaskGroup() as group:
                for client in range(clients):
                    group.create_task(self.traffic.ask_all_day(client))
                for index, act in enumerate(acts):
                    await asyncio.sleep(self.pause(acts[index:]))
                    await self._do(act)
                await asyncio.sleep(self.pause([]))
                self.traffic.ended = True
        finally:
            await self._stack.aclose()

    def pause(self, left: Sequence[Act]) -> float:
        """Seconds before the first of the acts that are left."""
        loading = self._load_seconds * sum(act.loads for act in left)
        free = (self._seconds - self.traffic.now - loading) / (len(left) + 1)
        least, most = self._seconds * LEAST_PAUSE, self._seconds * MOST_PAUSE
        return min(max(free, least), most)

    def _acts(self) -> list[Act]:
        first, second = self._names
        return [
            Act("load the second", lambda: self._change("load", second)),
            Act("unload it for lack of use", self._idle),
            Act("switch to it", lambda: self._change("switch", second)),
            Act("switch back", lambda: self._change("switch", first)),
            Act("load the default anew", lambda: self._change("switch", first)),
            Act("change the keys", self._change_keys, loads=False),
            Act("drain and start again", self._restart),
        ]

    async def _do(self, act: Act) -> None:
        progress(f"day: {act.name}")
        at, problem = self.traffic.now, None
        try:
            await act.do()
        except (UserError, aiohttp.ClientError, OSError, TimeoutError) as error:
            problem = str(error) or type(error).__name__
        took = self.traffic.now - at
        if act.loads:
            self._load_seconds = max(self._load_seconds, took)
        self.events.append(Event(act.name, at, took, problem))

    async def _start(self) -> None:
        self._gateway = await self._stack.enter_async_context(
            running_gateway(self._setup, **self._settings)
        )

    async def _change(self, what: str, model: str, **fields: object) -> None:
        await self._call(f"packages/{what}", {"model": model, **fields})

    async def _call(self, path: str, body: object = None) -> Any:
        method = "GET" if body is None else "POST"
        url = f"{self.traffic.url}/v1/{path}"
        async with (
            aiohttp.ClientSession(headers=self.traffic.headers) as session,
            session.request(method, url, json=body) as response,
        ):
            answer = await response.json()
            if response.status != 200:
                raise UserError(answer["error"]["message"], code=answer["error"]["code"])
            return answer

    async def _idle(self) -> None:
        """For a while the clients ask the first alone; the other is to go, and to come back when
        they want it."""
        first, second = self._names
        try:
            self.traffic.models = (first,)
            await self._change("load", second, keep_alive=1)
            await self._until(second, "unloaded")
        finally:
            self.traffic.models = self._names
        await self._until(second, "loaded")
        await self._change("load", second, keep_alive=-1)

    async def _until(self, name: str, state: str) -> None:
        async with asyncio.timeout(120):
            # A gateway tells of its packages only those who ask.
            while await self._state(name) != state:  # noqa: ASYNC110
                await asyncio.sleep(0.2)

    async def _state(self, name: str) -> str:
        packages = (await self._call("packages"))["data"]
        (state,) = [each["state"] for each in packages if each["id"] == name]
        return str(state)

    async def _change_keys(self) -> None:
        assert self._gateway is not None, "it was started"
        self._keys.write_text(f"{NAME}:{KEYS[1]}\n")
        begun = self.traffic.now
        self._gateway.signal(signal.SIGHUP)
        async with asyncio.timeout(10), aiohttp.ClientSession() as session:
            headers = {"Authorization": f"Bearer {KEYS[1]}"}
            while True:
                url = f"{self.traffic.url}/v1/models"
                async with session.get(url, headers=headers) as response:
                    if response.status == 200:
                        break
                await asyncio.sleep(0.05)
        # Their key stays the old one until a client was told that it is none any more.
        async with asyncio.timeout(ANSWER_SECONDS):
            # A client notes what it was told, and wakes nobody for it.
            while not any(told.reason in NO_KEY for told in self.traffic.told):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        self.traffic.key = KEYS[1]
        self.traffic.unkeyed.append((begun, self.traffic.now))

    async def _restart(self) -> None:
        away = self.traffic.now
        await self._stack.aclose()
        await self._start()
        self.traffic.away.append((away, self.traffic.now))


async def live_a_day(
    setup: Setup, second: Path, directory: Path, seconds: float, clients: int
) -> tuple[Traffic, list[Event]]:
    """A day of `clients` clients, about as long as said: what takes longer is waited for."""
    day = Day(setup, second, directory, seconds)
    await day.live(clients)
    return day.traffic, day.events


async def kills(setup: Setup, second: Path, count: int) -> list[Kept]:
    """Gateways that are killed while they switch packages, at moments that differ, and whether the
    next one serves as if nothing had been. Each is the next one of the one before.

    Raises `UserError` where the first one does not serve.
    """
    names = (setup.package.manifest.name, load_package(second).manifest.name)
    random = Random(0)
    after, found = 0.0, list[Kept]()
    for number in range(count + 1):
        try:
            async with running_gateway(setup, packages=second, queue=8) as gateway:
                took = await _serve_both(gateway.url, names)
                if number:
                    found.append(Kept(after, came_back=True))
                if number < count:
                    after = random.uniform(0, took)
                    await _kill_in_switch(gateway, names[0], after)
        except (UserError, aiohttp.ClientError, OSError) as error:
            if number == 0:
                raise UserError(
                    f"the gateway does not serve: {error}", code="gateway_failed"
                ) from None
            found.append(Kept(after, came_back=False, problem=str(error)))
        progress(f"day: {number} of {count} killed gateways came back")
    return found


async def _serve_both(url: str, names: tuple[str, str]) -> float:
    """Have the first package answer, then the second one as the default; seconds of the switch.
    Raises `UserError` for what does not."""
    await _post(url, "responses", {**_HELLO, "model": names[0]})
    begun = time.monotonic()
    await _post(url, "packages/switch", {"model": names[1]})
    took = time.monotonic() - begun
    await _post(url, "responses", _HELLO)
    return took


async def _kill_in_switch(gateway: GatewayProcess, name: str, after: float) -> None:
    """Begin a switch under a stream, and kill the gateway in the middle of it."""
    streaming = asyncio.create_task(_post(gateway.url, "responses", _HELLO))
    switching = asyncio.create_task(_post(gateway.url, "packages/switch", {"model": name}))
    await asyncio.sleep(after)
    gateway.signal(signal.SIGKILL)
    await asyncio.wait([streaming, switching])
    for task in (streaming, switching):
        task.exception()  # they died with it, or had ended


async def _post(url: str, path: str, body: Mapping[str, object]) -> None:
    """Raises `UserError` where it is refused."""
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{url}/v1/{path}", json=dict(body)) as response,
    ):
        answer = await response.json()
        if response.status != 200:
            raise UserError(answer["error"]["message"], code=answer["error"]["code"])
