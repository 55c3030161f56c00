"""The socket itself: turns, lanes, cancelling, and what clients get wrong."""

from __future__ import annotations

import asyncio
import json
import struct
from typing import Any

import pytest
from aiohttp import WSMsgType

from gateway.http.responses.websocket import MAX_LANES, MAX_PENDING
from gateway.limits import Limits
from tests.fake_engine import ENDLESS, FakeEngine
from tests.http_serving import answer_of, ask, is_last, serving, socket_to, until
from tests.patience import PATIENCE

MAX_MESSAGE = Limits().message_bytes


def text_of(events: list[dict[str, Any]]) -> str:
    return "".join(event.get("delta", "") for event in events)


async def test_the_newest_response_of_a_connection_is_kept_without_store() -> None:
    engine = FakeEngine("yes")
    async with serving(engine) as served, socket_to(served) as socket:
        first = await ask(socket, input="a", store=False)
        second = await ask(
            socket, input="b", store=False, previous_response_id=first[-1]["response"]["id"]
        )
        assert engine.prompt() == "<user>a</><assistant>yes</><user>b</><assistant>"
        lost = await ask(socket, input="c", previous_response_id=first[-1]["response"]["id"])
        assert lost[0]["error"]["code"] == "previous_response_not_found"
        assert lost[0]["status"] == 400
        third = await ask(socket, input="c", previous_response_id=second[-1]["response"]["id"])
        assert third[-1]["type"] == "response.completed"


async def test_a_stored_response_is_found_by_other_connections_and_an_unstored_is_not() -> None:
    async with serving(FakeEngine("yes")) as served:
        async with socket_to(served) as socket:
            stored = (await ask(socket, input="a"))[-1]["response"]["id"]
            unstored = (await ask(socket, input="a", store=False))[-1]["response"]["id"]
        async with socket_to(served) as socket:
            found = await ask(socket, input="b", previous_response_id=stored)
            assert found[-1]["type"] == "response.completed"
            lost = await ask(socket, input="b", previous_response_id=unstored)
            assert lost[-1]["error"]["code"] == "previous_response_not_found"


@pytest.mark.parametrize(
    "broken",
    [
        {"input": 7},
        {"input": "refuse me"},
        {"input": "b" * 2000},
        {"input": "b", "temperature": 3},
        {"input": "b", "model": "another"},
    ],
)
async def test_a_failed_continuation_evicts_what_it_continued(broken: dict[str, Any]) -> None:
    async with serving(FakeEngine("yes")) as served, socket_to(served) as socket:
        kept = (await ask(socket, input="a", store=False))[-1]["response"]["id"]
        assert (await ask(socket, previous_response_id=kept, **broken))[-1]["type"] == "error"
        lost = await ask(socket, input="b", previous_response_id=kept)
        assert lost[-1]["error"]["code"] == "previous_response_not_found"


async def test_a_continuation_that_fails_in_mid_stream_evicts_too() -> None:
    engine = FakeEngine("yes")
    async with serving(engine) as served, socket_to(served) as socket:
        kept = (await ask(socket, input="a", store=False))[-1]["response"]["id"]
        engine.failure = RuntimeError("gone")
        failed = await ask(socket, input="b", previous_response_id=kept)
        assert failed[-1]["type"] == "response.failed"
        engine.failure = None
        lost = await ask(socket, input="b", previous_response_id=kept)
        assert lost[-1]["error"]["code"] == "previous_response_not_found"


async def test_without_stream_id_responses_come_one_after_another() -> None:
    engine = FakeEngine("abc", pace=0.005)
    async with serving(engine) as served, socket_to(served) as socket:
        for text in "123":
            await socket.send_json({"type": "response.create", "input": text})
        answers = [await answer_of(socket) for _ in range(3)]
    assert [text_of(events) for events in answers] == ["abc"] * 3
    assert [engine.prompt(index)[6] for index in range(3)] == ["1", "2", "3"]
    assert engine.most_running == 1


async def test_lanes_run_in_parallel_and_carry_their_names() -> None:
    engine = FakeEngine("abcdef", held=3)
    async with serving(engine) as served, socket_to(served) as socket:
        for lane in ("one", "two", "two"):
            await socket.send_json({"type": "response.create", "input": "x", "stream_id": lane})
        await until(lambda: engine.running == 2)
        engine.go_on()
        events, last = [], 0
        while last < 3:
            events.append(await socket.receive_json(timeout=PATIENCE))
            last += is_last(events[-1])
    assert engine.most_running == 2
    named = [[event for event in events if event["stream_id"] == lane] for lane in ("one", "two")]
    assert text_of(named[0]) == "abcdef"
    assert text_of(named[1]) == "abcdefabcdef"
    assert [event["sequence_number"] for event in named[0]] == list(range(len(named[0])))
    first_of_two = next(index for index, event in enumerate(events) if event["stream_id"] == "two")
    last_of_one = max(index for index, event in enumerate(events) if event["stream_id"] == "one")
    assert first_of_two < last_of_one


@pytest.mark.parametrize("name", ["", "a b", "x" * 257, "ä"])
async def test_a_bad_stream_id_is_refused(name: str) -> None:
    async with serving(FakeEngine()) as served, socket_to(served) as socket:
        (error,) = await ask(socket, input="x", stream_id=name)
        assert error["error"]["param"] == "stream_id"
        assert "stream_id" not in error
        assert (await ask(socket, input="x"))[-1]["type"] == "response.completed"


async def test_lanes_and_waiting_requests_are_bounded() -> None:
    engine = FakeEngine(ENDLESS, pace=1)
    async with serving(engine) as served, socket_to(served) as socket:
        for number in range(MAX_LANES + 1):
            await socket.send_json(
                {"type": "response.create", "input": "x", "stream_id": str(number)}
            )
        error = await next_error(socket)
        assert error["error"]["code"] == "websocket_stream_limit_reached"
        assert error["stream_id"] == str(MAX_LANES)
        for _ in range(MAX_PENDING + 1):
            await socket.send_json({"type": "response.create", "input": "x", "stream_id": "0"})
        error = await next_error(socket)
        assert (error["error"]["code"], error["status"]) == ("queue_full", 429)


async def test_lanes_that_have_not_begun_are_not_waiting_requests() -> None:
    """All of a burst is read before the first lane runs."""
    engine = FakeEngine(ENDLESS, pace=1)
    async with serving(engine) as served, socket_to(served) as socket:
        burst = [
            json.dumps({"type": "response.create", "input": "x", "stream_id": str(number)})
            for number in range(MAX_LANES + 1)
        ]
        await asyncio.gather(*map(socket.send_str, burst))
        error = await next_error(socket)
        assert error["error"]["code"] == "websocket_stream_limit_reached"


async def next_error(socket: Any) -> dict[str, Any]:
    while True:
        event: dict[str, Any] = await socket.receive_json(timeout=PATIENCE)
        if event["type"] == "error":
            return event


async def test_cancel_ends_the_response_and_the_conversation_goes_on_from_there() -> None:
    engine = FakeEngine(ENDLESS, pace=0.002)
    async with serving(engine) as served, socket_to(served) as socket:
        await socket.send_json({"type": "response.create", "input": "a"})
        created = await socket.receive_json(timeout=PATIENCE)
        await asyncio.sleep(0.02)
        await socket.send_json(
            {"type": "response.cancel", "response_id": created["response"]["id"]}
        )
        events = await answer_of(socket)
        assert events[-1]["type"] == "response.incomplete"
        assert events[-1]["response"]["status"] == "cancelled"
        said = text_of(events)
        assert 0 < len(said) < len(ENDLESS)
        engine.answer = "ok"
        await ask(socket, input="b", previous_response_id=created["response"]["id"])
        assert engine.prompt() == f"<user>a</><assistant>{said}</><user>b</><assistant>"


async def test_cancelling_what_does_not_run_is_an_error() -> None:
    async with serving(FakeEngine()) as served, socket_to(served) as socket:
        await socket.send_json({"type": "response.cancel", "response_id": "resp_none"})
        error = await socket.receive_json(timeout=PATIENCE)
        assert (error["status"], error["error"]["code"]) == (404, "response_not_found")
        await socket.send_json({"type": "response.cancel"})
        error = await socket.receive_json(timeout=PATIENCE)
        assert error["error"]["param"] == "response_id"


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_a_client_that_leaves_ends_its_generations_at_once(how: str) -> None:
    engine = FakeEngine(ENDLESS, pace=0.01)
    async with serving(engine) as served:
        async with socket_to(served) as socket:
            for lane in ("one", "two"):
                await socket.send_json({"type": "response.create", "input": "x", "stream_id": lane})
            await until(lambda: engine.running == 2)
            if how == "reset":
                reset(socket)
            else:
                await socket.close()
            said = engine.said
            await until(lambda: engine.running == 0)
            assert engine.said - said < 2 * 50, "neither says more than it can in half a second"
        await until(lambda: served.gateway.running == 0)
        async with socket_to(served) as socket:
            engine.answer = "still here"
            assert text_of(await ask(socket, input="x")) == "still here"


def reset(socket: Any) -> None:
    """Drop the connection as a killed process does."""
    import socket as sockets

    handle = socket.get_extra_info("socket")
    handle.setsockopt(sockets.SOL_SOCKET, sockets.SO_LINGER, struct.pack("ii", 1, 0))
    socket._response.connection.transport.abort()


async def test_two_hundred_killed_clients_leave_nothing_behind() -> None:
    engine = FakeEngine(ENDLESS, pace=0.001)
    async with serving(engine) as served:
        for _ in range(200):
            async with socket_to(served) as socket:
                await socket.send_json({"type": "response.create", "input": "x"})
                await socket.receive_json(timeout=PATIENCE)
                reset(socket)
        await until(lambda: engine.running == 0)
        assert served.gateway.running == 0
        assert len(served.gateway.turns) == 0
        before = {task.get_name() for task in asyncio.all_tasks()}
        assert not [name for name in before if name.startswith("lane")]


async def test_a_client_that_does_not_read_is_dropped_and_others_go_on() -> None:
    engine = FakeEngine(["z" * 65536] * 1000)
    async with serving(engine, send_deadline=0.3) as served:
        reader, writer = await asyncio.open_connection(*address(served.url))
        writer.write(handshake(served.url))
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(masked(b'{"type":"response.create","input":"x"}'))
        await until(lambda: engine.running == 1)
        await until(lambda: engine.running == 0)
        engine.answer = "fine"
        async with socket_to(served) as socket:
            assert text_of(await ask(socket, input="x")) == "fine"
        writer.close()


def address(url: str) -> tuple[str, int]:
    host, _, port = url.removeprefix("http://").partition(":")
    return host, int(port)


def handshake(url: str) -> bytes:
    host = url.removeprefix("http://")
    return (
        f"GET /v1/responses HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\n"
        "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    ).encode()


def masked(payload: bytes) -> bytes:
    """A text frame from a client, with a mask of zeros."""
    return bytes([0x81, 0x80 | len(payload)]) + bytes(4) + payload


GARBAGE: list[tuple[str, str, str | None]] = [
    ("{", "invalid_json", None),
    ("", "invalid_json", None),
    ("hello", "invalid_json", None),
    ("NaN", "invalid_json", None),
    ('{"type":"\\ud800"}', "invalid_json", None),
    ("[1]", "invalid_type", None),
    ("null", "invalid_type", None),
    ('"x"', "invalid_type", None),
    ("{}", "missing_required_parameter", "type"),
    ('{"type":7}', "invalid_type", "type"),
    ('{"type":null}', "missing_required_parameter", "type"),
    ('{"type":"response.destroy"}', "unsupported_value", "type"),
    ('{"type":"response.create","stream_id":7}', "invalid_type", "stream_id"),
    ('{"type":"response.create"}', "missing_required_parameter", "input"),
    ("[" * 5000, "invalid_json", None),
    *(
        (f'{{"type":"{kind}","{field}":{"[" * depth}{"]" * depth}}}', "invalid_json", None)
        for kind, field in (("response.steer", "input"), ("response.create", "tools"))
        for depth in (252, 253, 300, 1000)
    ),
]


async def test_garbage_gets_its_error_and_the_connection_stays() -> None:
    async with serving(FakeEngine("fine")) as served, socket_to(served) as socket:
        for raw, code, param in GARBAGE:
            await socket.send_str(raw)
            event = await socket.receive_json(timeout=PATIENCE)
            assert event["type"] == "error", raw
            assert (event["error"]["code"], event["error"]["param"]) == (code, param), raw
            assert event["status"] == 400
        await socket.send_bytes(b'{"type":"response.create","input":"x"}')
        event = await socket.receive_json(timeout=PATIENCE)
        assert event["error"]["code"] == "invalid_type"
        assert text_of(await ask(socket, input="x")) == "fine"


async def test_an_oversized_message_closes_with_1009_and_the_server_goes_on() -> None:
    async with serving(FakeEngine("fine")) as served:
        async with socket_to(served) as socket:
            await socket.send_str("x" * (MAX_MESSAGE + 1))
            message = await socket.receive(timeout=PATIENCE)
            assert message.type is WSMsgType.CLOSE
            assert message.data == 1009
        async with socket_to(served) as socket:
            big = await ask(socket, input="x" * (MAX_MESSAGE - 100))
            assert big[0]["error"]["code"] == "context_length_exceeded"
            assert text_of(await ask(socket, input="x")) == "fine"


async def test_broken_utf8_closes_and_the_server_goes_on() -> None:
    async with serving(FakeEngine("fine")) as served:
        reader, writer = await asyncio.open_connection(*address(served.url))
        writer.write(handshake(served.url))
        await reader.readuntil(b"\r\n\r\n")
        writer.write(masked(b"\xff\xfe"))
        frame = await asyncio.wait_for(reader.readexactly(4), PATIENCE)
        assert frame[0] == 0x88
        assert struct.unpack("!H", frame[2:4])[0] == 1007
        writer.close()
        async with socket_to(served) as socket:
            assert text_of(await ask(socket, input="x")) == "fine"


async def test_pings_are_answered_while_a_response_streams() -> None:
    engine = FakeEngine(ENDLESS, pace=0.01)
    async with serving(engine) as served, socket_to(served, autoping=False) as socket:
        await socket.send_json({"type": "response.create", "input": "x"})
        await socket.ping(b"are you there")
        while (message := await socket.receive(timeout=PATIENCE)).type is not WSMsgType.PONG:
            assert message.type is WSMsgType.TEXT
        assert message.data == b"are you there"


async def test_a_full_queue_and_an_unknown_model_say_so() -> None:
    async with serving(FakeEngine(capacity=0)) as served, socket_to(served) as socket:
        (error,) = await ask(socket, input="x")
        assert (error["status"], error["error"]["code"]) == (429, "queue_full")
        assert error["error"]["type"] == "rate_limit_error"
        (error,) = await ask(socket, input="x", model="gpt-4")
        assert (error["status"], error["error"]["code"]) == (404, "model_not_found")
        assert error["error"]["param"] == "model"
        assert "tiny-test" in error["error"]["message"]


async def test_speculation_reaches_the_engine() -> None:
    engine = FakeEngine("a")
    async with serving(engine, speculation_length=4) as served, socket_to(served) as socket:
        await ask(socket, input="x")
        await ask(socket, input="x", speculation={"policy": "fixed", "length": 7})
        events = await ask(socket, input="x", speculation={"off": True})
    asked = [request.speculation for request in engine.requests]
    assert [(each.policy, each.length) for each in asked] == [
        ("cost", 4),
        ("fixed", 7),
        ("off", 4),
    ]
    assert events[-1]["response"]["timings"]["policy"] == "off"


async def test_an_unknown_type_is_told_what_is_served() -> None:
    async with serving(FakeEngine("a")) as served, socket_to(served) as socket:
        await socket.send_json({"type": "session.update"})
        event = await socket.receive_json(timeout=PATIENCE)
    assert event["error"]["param"] == "type"
    told = "known are response.create, response.resume and response.cancel."
    assert event["error"]["message"].endswith(told)
