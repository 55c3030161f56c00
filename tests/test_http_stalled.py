"""Many clients that stop reading: they hold up nobody, take little memory, and are dropped."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import psutil

from bench.raw_socket import opened
from gateway.http.responses.sockets import WRITER_LIMIT
from tests.fake_engine import FakeEngine
from tests.http_serving import Served, ask, serving, socket_to, until
from tests.patience import PATIENCE
from tests.test_http_websocket import text_of

STALLED, GENERATING = 200, 4
PIECE = "z"
PIECES = 2000
"""Whose events are more than all buffers on the way to a client take."""

BUFFER = 4096
MOST_UNSENT = (64 << 10) + WRITER_LIMIT + 4096
"""Bytes that wait here for a client: asyncio's own bound, what aiohttp writes between two looks at
it, and an event."""

DEADLINE = 10.0
MOST_EACH = 512 << 10
"""Bytes of this process for a stalled client: both ends of its connection, and its share of what
the four who read make of their answers."""


def write_buffers(served: Served) -> list[int]:
    """What waits in this process to be sent, by connection."""
    assert served.runner.server is not None
    transports = [each.transport for each in served.runner.server.connections]
    return [each.get_write_buffer_size() for each in transports if each is not None]


async def test_two_hundred_that_stop_reading_do_not_hold_up_four() -> None:
    engine = FakeEngine([PIECE] * PIECES, capacity=STALLED + GENERATING)
    async with (
        serving(engine, send_deadline=DEADLINE, send_buffer=BUFFER) as served,
        AsyncExitStack() as stack,
    ):
        before = psutil.Process().memory_info().rss
        clients = [
            await stack.enter_async_context(opened(served.url, receive_buffer=BUFFER))
            for _ in range(STALLED)
        ]
        for client in clients:
            await client.text('{"type":"response.create","input":"x","store":false}')
        await until(lambda: sum(size > 0 for size in write_buffers(served)) == STALLED)

        async def generate() -> str:
            async with socket_to(served) as socket:
                return text_of(await ask(socket, input="y"))

        said = await asyncio.gather(*(generate() for _ in range(GENERATING)))
        assert said == [PIECE * PIECES] * GENERATING
        assert engine.running == STALLED, "they were there all the time"
        assert psutil.Process().memory_info().rss - before < STALLED * MOST_EACH
        assert max(write_buffers(served)) < MOST_UNSENT
        await until(lambda: engine.running == 0)
        await until(lambda: not write_buffers(served))
        assert served.gateway.running == 0
        assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("lane")]


async def test_a_reader_of_a_background_response_that_stalls_is_dropped_and_nothing_else() -> None:
    engine = FakeEngine([PIECE] * PIECES, pace=0.001)
    async with serving(engine, send_deadline=0.3, send_buffer=BUFFER) as served:
        async with socket_to(served) as socket:
            await socket.send_json({"type": "response.create", "input": "x", "background": True})
            created = await socket.receive_json(timeout=PATIENCE)
        response_id = created["response"]["id"]
        resume = f'{{"type":"response.resume","response_id":"{response_id}"}}'
        async with opened(served.url, receive_buffer=BUFFER) as stalled:
            await stalled.text(resume)
            await until(lambda: any(write_buffers(served)))
            async with socket_to(served) as socket:
                await socket.send_str(resume)
                events = [await socket.receive_json(timeout=PATIENCE)]
                while events[-1]["type"] != "response.completed":
                    events.append(await socket.receive_json(timeout=PATIENCE))
            assert text_of(events) == PIECE * PIECES
            await until(lambda: not write_buffers(served))
