"""What operators do in the course of a day, one thing after another."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import aiohttp

from bench.day_clients import ANSWER_SECONDS, Kept, Traffic
from bench.gateway_process import GatewayProcess, free_port, running_gateway
from bench.setup import Setup, progress
from models.errors import UserError
from models.package import load_package

NAME = "operator"
KEYS = ("the-key-of-the-morning", "the-key-of-the-evening")
NO_KEY = frozenset({"invalid_api_key", "handshake 401"})
"""Reasons of who was refused for the key."""

SETTLE = 0.1
"""Share of the day between two events, at most."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that was done `at` so many seconds of the day; `problem` None: as it should be."""

    name: str
    at: float
    seconds: float
    problem: str | None = None


class Day:
    """One gateway with two packages, its clients, and its operator."""

    def __init__(self, setup: Setup, second: Path, directory: Path, seconds: float) -> None:
        self._setup = setup
        self._keys = directory / "keys"
        self._keys.write_text(f"{NAME}:{KEYS[0]}\n")
        self._pause = seconds * SETTLE
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
        try:
            await self._start()
            async with asyncio.TaskGroup() as group:
                for client in range(clients):
                    group.create_task(self.traffic.ask_all_day(client))
                for name, act in self._acts():
                    await asyncio.sleep(self._pause)
                    await self._do(name, act)
                await asyncio.sleep(self._pause)
                self.traffic.ended = True
        finally:
            await self._stack.aclose()

    def _acts(self) -> list[tuple[str, Callable[[], Awaitable[None]]]]:
        first, second = self._names
        return [
            ("load the second", lambda: self._change("load", second)),
            ("unload it for lack of use", self._idle),
            ("switch to it", lambda: self._change("switch", second)),
            ("switch back", lambda: self._change("switch", first)),
            ("load the default anew", lambda: self._change("switch", first)),
            ("change the keys", self._change_keys),
            ("drain and start again", self._restart),
        ]

    async def _do(self, name: str, act: Callable[[], Awaitable[None]]) -> None:
        progress(f"day: {name}")
        at, problem = self.traffic.now, None
        try:
            await act()
        except (UserError, aiohttp.ClientError, OSError, TimeoutError) as error:
            problem = str(error) or type(error).__name__
        self.events.append(Event(name, at, self.traffic.now - at, problem))

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
    next one serves as if nothing had been."""
    names = (setup.package.manifest.name, load_package(second).manifest.name)
    random = Random(0)
    took, found = 1.0, list[Kept]()
    for number in range(count + 1):
        after = None if number == 0 else random.uniform(0, took)
        async with running_gateway(setup, packages=second, queue=8) as gateway:
            begun = time.monotonic()
            problem = await _switch(gateway, names[1], after)
        if after is None:
            took = time.monotonic() - begun
            continue
        async with running_gateway(setup, packages=second) as gateway:
            for name in names:
                problem = problem or await _asked(gateway.url, name)
        progress(f"day: {number} of {count} killed")
        found.append(Kept(after, problem is None, problem))
    return found


async def _switch(gateway: GatewayProcess, name: str, after: float | None) -> str | None:
    """Begin a switch under a stream, and kill the gateway in the middle of it."""
    async with aiohttp.ClientSession() as session:
        streaming = asyncio.create_task(_asked(gateway.url, None))
        url = f"{gateway.url}/v1/packages/switch"
        switching = asyncio.create_task(_status(session, url, {"model": name}))
        if after is None:
            return await streaming or (None if await switching == 200 else "it did not switch")
        await asyncio.sleep(after)
        gateway.signal(signal.SIGKILL)
        for task in (streaming, switching):
            with suppress(aiohttp.ClientError, OSError, ValueError):
                await task
    return None


async def _status(session: aiohttp.ClientSession, url: str, body: object) -> int:
    async with session.post(url, json=body) as response:
        return response.status


async def _asked(url: str, model: str | None) -> str | None:
    """What is wrong with an answer; None: nothing."""
    body = {"input": "Say hello.", "max_output_tokens": 8, **({"model": model} if model else {})}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{url}/v1/responses", json=body) as response,
    ):
        answer = await response.json()
        return None if response.status == 200 else str(answer["error"]["message"])
