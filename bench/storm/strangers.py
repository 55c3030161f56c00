"""The clients that want nothing of the model. Each runs until it is cancelled, and reconnects."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from bench.raw_socket import PING, PONG, RawSocket, connect, encoded, stream_to
from bench.storm.garbage import http_garbage, socket_garbage

RECEIVE_BUFFER = 8192
"""Bytes that the kernel takes for a client that does not read."""

_STEER = json.dumps({"type": "response.steer", "input": "x" * 65_536})
_REFUSED = json.dumps({"type": "response.create", "input": "x", "model": "another"})
_CREATE = json.dumps({"type": "response.create", "input": "Say hello.", "max_output_tokens": 16})
_BODY = json.dumps({"input": "Say hello.", "max_output_tokens": 16, "stream": True}).encode()
_POST = (
    b"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n%b" % (len(_BODY), _BODY)
)
_HTTP_SHARE = 0.3
_RECONNECT_SECONDS = 0.5
_GONE = (ConnectionError, EOFError, TimeoutError, OSError)


@dataclass(slots=True)
class Scene:
    """Where the strangers are and what they do there.

    While `slots_taken` is set nobody of them can get a slot: then they may ask for answers, which
    they will not wait for. `acts` counts what they did, `open` their connections.
    """

    url: str
    every: float
    chance: random.Random
    slots_taken: asyncio.Event = field(default_factory=asyncio.Event)
    acts: Counter[str] = field(default_factory=Counter)
    open: int = 0

    async def pause(self) -> None:
        await asyncio.sleep(self.chance.expovariate(1 / self.every))


Act = Callable[[Scene, RawSocket], Awaitable[None]]


async def idle(scene: Scene) -> None:
    """Answers pings, as clients do."""

    async def read(scene: Scene, client: RawSocket) -> None:
        while True:
            await _answer(client)

    await _again_and_again(scene, read)


async def stalling(scene: Scene) -> None:
    """Never reads; what it says brings long answers and short ones."""

    async def act(scene: Scene, client: RawSocket) -> None:
        while True:
            await scene.pause()
            await client.text(scene.chance.choice((_STEER, _REFUSED)))
            scene.acts["messages of clients that stall"] += 1

    await _again_and_again(scene, act, receive_buffer=RECEIVE_BUFFER)


async def dropping(scene: Scene) -> None:
    """Vanishes: while it does nothing, in mid-message, or while it waits for an answer."""

    async def act(scene: Scene, client: RawSocket) -> None:
        await scene.pause()
        how = scene.chance.randrange(4)
        if how == 0:
            frame = encoded(0x1, _CREATE.encode())
            await client.raw(frame[: scene.chance.randrange(1, len(frame))])
        elif how == 1 and scene.slots_taken.is_set():
            await client.text(_CREATE)
            scene.acts["answers asked for and not waited for"] += 1
            await asyncio.sleep(scene.chance.uniform(0, scene.every))
        elif how == 2 and scene.slots_taken.is_set():
            await _post_and_leave(scene)
        scene.acts["connections dropped"] += 1

    await _again_and_again(scene, act)


async def garbling(scene: Scene) -> None:
    """Sends what is no request, and reads what is said to that."""

    async def act(scene: Scene, client: RawSocket) -> None:
        async with _reading(client):
            while True:
                await scene.pause()
                if scene.chance.random() < _HTTP_SHARE:
                    await _say_to_port(scene, http_garbage(scene.chance))
                else:
                    await client.raw(socket_garbage(scene.chance))
                scene.acts["pieces of garbage"] += 1

    await _again_and_again(scene, act)


async def _again_and_again(scene: Scene, act: Act, receive_buffer: int | None = None) -> None:
    while True:
        try:
            client = await connect(scene.url, receive_buffer=receive_buffer)
        except _GONE:
            scene.acts["connections refused"] += 1
            await asyncio.sleep(_RECONNECT_SECONDS)
            continue
        scene.open += 1
        try:
            await act(scene, client)
        except* _GONE:
            scene.acts["connections that the gateway ended"] += 1
        finally:
            scene.open -= 1
            await client.reset()


async def _answer(client: RawSocket) -> None:
    """Read a frame, and answer it if it is a ping."""
    opcode, payload = await client.receive(seconds=None)
    if opcode == PING:
        await client.frame(PONG, payload)


@asynccontextmanager
async def _reading(client: RawSocket) -> AsyncIterator[None]:
    async def read() -> None:
        while True:
            await _answer(client)

    async with asyncio.TaskGroup() as group:
        reading = group.create_task(read())
        try:
            yield
        finally:
            reading.cancel()


async def _post_and_leave(scene: Scene) -> None:
    await _say_to_port(scene, _POST, scene.chance.uniform(0, scene.every))


async def _say_to_port(scene: Scene, data: bytes, seconds: float = 0.2) -> None:
    """On a connection of its own, which is reset after these seconds."""
    with suppress(*_GONE):
        reader, writer = await stream_to(scene.url)
        other = RawSocket(reader, writer)
        try:
            await other.raw(data)
            await asyncio.sleep(seconds)
        finally:
            await other.reset()
