"""One response, read by several connections: while it runs, after its end, after a cancel."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest

from tests.fake_engine import ENDLESS, FakeEngine
from tests.http_serving import Served, answer_of, serving, socket_to, until
from tests.patience import PATIENCE
from tests.test_http_guard import get
from tests.test_http_stored import begun, events_of
from tests.test_http_websocket import text_of

LONG = "abcdefghij" * 20


async def resume(
    socket: aiohttp.ClientWebSocketResponse, response_id: str, after: int | None = None, **more: Any
) -> None:
    fields = {} if after is None else {"starting_after": after}
    await socket.send_json(
        {"type": "response.resume", "response_id": response_id, **fields, **more}
    )


async def resumed(served: Served, response_id: str, after: int | None = None) -> list[Any]:
    async with socket_to(served) as socket:
        await resume(socket, response_id, after)
        return await answer_of(socket)


def numbers(events: list[Any]) -> list[int]:
    return [event["sequence_number"] for event in events]


async def test_two_connections_resume_a_running_response_each_from_its_own_place() -> None:
    engine = FakeEngine(LONG, held=60)
    async with serving(engine) as served:
        async with socket_to(served) as socket:
            response_id = await begun(socket, background=True)
            seen = [await socket.receive_json(timeout=PATIENCE) for _ in range(30)]
        last = seen[-1]["sequence_number"]
        assert engine.running == 1
        engine.go_on()
        one, other, all_of_it = await asyncio.gather(
            resumed(served, response_id, last),
            resumed(served, response_id, 3),
            events_of(served, response_id),
        )
    assert numbers(all_of_it) == list(range(len(all_of_it)))
    assert all_of_it[1 : last + 1] == seen
    assert one == all_of_it[last + 1 :]
    assert other == all_of_it[4:]
    assert text_of(all_of_it) == LONG
    assert len(engine.requests) == 1, "nothing was generated twice"


async def test_two_lanes_of_a_connection_resume_the_same_response() -> None:
    engine = FakeEngine(LONG, pace=0.003)
    async with serving(engine) as served, socket_to(served) as socket:
        response_id = await begun(socket, background=True, stream_id="made")
        await resume(socket, response_id, stream_id="one")
        await resume(socket, response_id, 9, stream_id="two")
        lanes: dict[str, list[Any]] = {"made": [], "one": [], "two": []}
        ended = 0
        while ended < len(lanes):
            event = await socket.receive_json(timeout=PATIENCE)
            lanes[event.pop("stream_id")].append(event)
            ended += event["type"] == "response.completed"
    assert numbers(lanes["one"]) == list(range(len(lanes["one"])))
    assert lanes["made"] == lanes["one"][1:]
    assert lanes["two"] == lanes["one"][10:]


async def test_who_leaves_takes_nothing_from_who_stays() -> None:
    engine = FakeEngine(LONG, held=60)
    async with serving(engine) as served:
        async with socket_to(served) as socket:
            response_id = await begun(socket, background=True)
        staying = asyncio.create_task(resumed(served, response_id))
        async with socket_to(served) as socket:
            await resume(socket, response_id)
            assert (await socket.receive_json(timeout=PATIENCE))["type"] == "response.created"
        assert engine.running == 1
        engine.go_on()
        assert text_of(await staying) == LONG


@pytest.mark.parametrize("background", [False, True])
async def test_after_its_end_several_read_it_at_once_and_as_often_as_they_like(
    background: bool,
) -> None:
    async with serving(FakeEngine("abcdefgh")) as served:
        async with socket_to(served) as socket:
            response_id = await begun(socket, background=background)
            sent = await answer_of(socket)
        for _ in range(2):
            readings = await asyncio.gather(*(resumed(served, response_id, 0) for _ in range(3)))
            assert readings == [sent] * 3
        last = sent[-1]["sequence_number"]
        assert await resumed(served, response_id, last - 1) == sent[-1:]


async def test_a_cancel_ends_all_who_read_and_can_be_read_again() -> None:
    engine = FakeEngine(ENDLESS, pace=0.005)
    async with serving(engine) as served:
        async with socket_to(served) as socket:
            response_id = await begun(socket, background=True)
            for _ in range(10):
                await socket.receive_json(timeout=PATIENCE)
        readers = [asyncio.create_task(resumed(served, response_id)) for _ in range(2)]
        follower = asyncio.create_task(events_of(served, response_id))
        path = f"/v1/responses/{response_id}/cancel"
        status, cancelled = await get(served, path, method="POST")
        assert (status, cancelled["status"]) == (200, "cancelled")
        one, other, followed = [*await asyncio.gather(*readers), await follower]
        assert one == other == followed
        assert numbers(one) == list(range(len(one)))
        assert one[-1]["type"] == "response.incomplete"
        assert one[-1]["response"] == cancelled
        await until(lambda: engine.running == 0)
        # And what came behind the tenth, once it is over.
        assert await resumed(served, response_id, 10) == one[11:]
        assert len(engine.requests) == 1


async def test_a_deleted_response_ends_for_who_reads_it_and_cannot_be_resumed() -> None:
    engine = FakeEngine(ENDLESS, pace=0.005)
    async with serving(engine) as served:
        async with socket_to(served) as socket:
            response_id = await begun(socket, background=True)
        async with socket_to(served) as socket:
            await resume(socket, response_id)
            assert (await socket.receive_json(timeout=PATIENCE))["type"] == "response.created"
            path = f"/v1/responses/{response_id}"
            assert (await get(served, path, method="DELETE"))[0] == 200
            (error,) = await resumed(served, response_id)
            assert error["error"]["code"] == "response_not_found"
            assert (await answer_of(socket))[-1]["response"]["status"] == "cancelled"
