"""How much a request may ask for, and how large it may be."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import aiohttp
import pytest
from aiohttp import WSMsgType

from gateway.http.completions.schema import parse_chat, parse_text
from gateway.http.responses.schema import parse_create
from gateway.http.sizes import bounded_tokens, nesting_of, require_small_schemas
from gateway.limits import Limits
from gateway.settings import Settings
from models.errors import UserError
from tests.fake_engine import FakeEngine
from tests.http_serving import ask, serving, socket_to
from tests.patience import PATIENCE
from tests.test_http_guard import get
from tests.test_http_websocket import address

SMALL = Limits(schema_bytes=60, schema_nesting=3)
DEEP = {"a": {"b": {"c": {}}}}
LARGE = {"description": "x" * 60}


def in_places(schema: object) -> list[tuple[dict[str, Any], str]]:
    return [
        ({"text": {"format": {"schema": schema}}}, "text.format.schema"),
        ({"response_format": {"schema": schema}}, "response_format.schema"),
        (
            {"response_format": {"json_schema": {"schema": schema}}},
            "response_format.json_schema.schema",
        ),
        ({"tools": [{}, {"parameters": schema}]}, "tools[1].parameters"),
        ({"tools": [{"function": {"parameters": schema}}]}, "tools[0].function.parameters"),
        ({"functions": [{"parameters": schema}]}, "functions[0].parameters"),
    ]


@pytest.mark.parametrize(("schema", "problem"), [(DEEP, "nested too deeply"), (LARGE, "bytes")])
def test_a_schema_that_is_too_large_is_named(schema: object, problem: str) -> None:
    for document, param in in_places(schema):
        require_small_schemas(document, Limits())
        with pytest.raises(UserError, match=problem) as error:
            require_small_schemas(document, SMALL)
        assert (error.value.code, error.value.param) == ("unsupported_value", param)


@pytest.mark.parametrize("schema", [None, 7, "x", True, {}, {"a": {"b": {}}}, [[[]]]])
def test_smaller_ones_and_what_is_none_pass(schema: object) -> None:
    for document, _ in in_places(schema):
        require_small_schemas(document, SMALL)


@pytest.mark.parametrize(
    "document",
    [{}, {"tools": 7}, {"tools": [7, None]}, {"text": []}, {"response_format": {"json_schema": 1}}],
)
def test_other_forms_are_for_others_to_refuse(document: dict[str, Any]) -> None:
    require_small_schemas(document, SMALL)


def test_nesting_counts_arrays_and_objects() -> None:
    assert [nesting_of(value) for value in (1, [], {}, [[]], {"a": [1, {"b": 2}]})] == [
        0,
        1,
        1,
        2,
        3,
    ]


def test_tokens_are_bounded_by_the_limit_where_there_is_one() -> None:
    limits = replace(Limits(), output_tokens=100)
    assert bounded_tokens({}, "n", Limits()) is None
    assert bounded_tokens({"n": 10**6}, "n", Limits()) == 10**6
    assert bounded_tokens({}, "n", limits) == 100
    assert bounded_tokens({"n": None}, "n", limits) == 100
    assert bounded_tokens({"n": 100}, "n", limits) == 100
    with pytest.raises(UserError, match="n is 101; answers have at most 100 tokens") as error:
        bounded_tokens({"n": 101}, "n", limits)
    assert (error.value.code, error.value.param) == ("unsupported_value", "n")


def test_every_endpoint_bounds_its_tokens() -> None:
    settings = Settings(limits_output_tokens=50)
    chat = {"messages": [{"role": "user", "content": "x"}]}
    assert parse_create({"input": "x"}, settings).max_output_tokens == 50
    assert parse_chat(chat, settings).common.max_tokens == 50
    assert parse_chat({**chat, "max_tokens": 40}, settings).common.max_tokens == 40
    newer = {**chat, "max_tokens": 40, "max_completion_tokens": 30}
    assert parse_chat(newer, settings).common.max_tokens == 30
    assert parse_text({"prompt": "x"}, settings).common.max_tokens == 16
    few = Settings(limits_output_tokens=5)
    assert parse_text({"prompt": "x"}, few).common.max_tokens == 5
    for parse, document, name in (
        (parse_create, {"input": "x"}, "max_output_tokens"),
        (parse_chat, chat, "max_tokens"),
        (parse_chat, chat, "max_completion_tokens"),
        (parse_text, {"prompt": "x"}, "max_tokens"),
    ):
        with pytest.raises(UserError) as error:
            parse({**document, name: 51}, settings)  # type: ignore[operator]
        assert error.value.param == name


async def test_messages_are_as_large_as_the_setting_says() -> None:
    async with serving(FakeEngine("ok"), limits_message_bytes=2048) as served:
        status, body = await get(served, "/v1/responses", method="POST", data=b"x" * 2049)
        assert (status, body["error"]["code"]) == (413, "message_too_large")
        assert "2048 bytes" in body["error"]["message"]
        async with socket_to(served) as socket:
            assert (await ask(socket, input="x" * 900))[-1]["type"] == "response.completed"
            await socket.send_str("x" * 2049)
            message = await socket.receive(timeout=PATIENCE)
            assert (message.type, message.data) == (WSMsgType.CLOSE, 1009)


async def test_packed_bodies_count_unpacked() -> None:
    """A small body that unpacks to a large one is none."""
    import zlib

    packed = zlib.compress(b" " * (64 << 20))
    async with serving(FakeEngine()) as served:
        status, body = await get(
            served,
            "/v1/responses",
            method="POST",
            data=packed,
            headers={"Content-Encoding": "deflate"},
        )
        assert (status, body["error"]["code"]) == (413, "message_too_large")


async def test_nesting_is_as_deep_as_the_setting_says() -> None:
    async with serving(FakeEngine("ok"), limits_nesting=8) as served:
        deep = '{"input":"x","metadata":' + "[" * 8 + "]" * 8 + "}"
        status, body = await get(served, "/v1/responses", method="POST", data=deep)
        assert (status, body["error"]["code"]) == (400, "invalid_json")
        async with socket_to(served) as socket:
            await socket.send_str(deep)
            event = await socket.receive_json(timeout=PATIENCE)
            assert event["error"]["code"] == "invalid_json"


@pytest.mark.parametrize(
    "head",
    [
        b"GET /%b HTTP/1.1\r\nHost: localhost\r\n\r\n" % (b"a" * 3000),
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nA: %b\r\n\r\n" % (b"a" * 3000),
        b"GET /health HTTP/1.1\r\nHost: localhost\r\n%b\r\n" % (b"A: b\r\n" * 40),
    ],
)
async def test_heads_are_bounded(head: bytes) -> None:
    async with serving(FakeEngine(), limits_header_bytes=2048, limits_headers=20) as served:
        reader, writer = await asyncio.open_connection(*address(served.url))
        writer.write(head)
        answer = await asyncio.wait_for(reader.read(), PATIENCE)
        assert answer.split(b" ", 2)[1] == b"400"
        writer.close()
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"{served.url}/health", headers={"A": "a" * 1500}) as response,
        ):
            assert response.status == 200


async def test_sockets_are_as_many_as_the_setting_says() -> None:
    async with (
        serving(FakeEngine("ok"), limits_connections=1) as served,
        socket_to(served) as first,
    ):
        async with socket_to(served) as second:
            event = await second.receive_json(timeout=PATIENCE)
            assert (event["status"], event["error"]["code"]) == (
                429,
                "websocket_connection_limit_reached",
            )
            assert event["request_id"].startswith("req_")
            message = await second.receive(timeout=PATIENCE)
            assert (message.type, message.data) == (WSMsgType.CLOSE, 1013)
        assert (await ask(first, input="x"))[-1]["type"] == "response.completed"
