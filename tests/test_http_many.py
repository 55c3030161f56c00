"""Requests made of very many small things: refused before reading them holds up anybody else."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable
from typing import Any

import aiohttp
import orjson
import pytest

from gateway.http.completions.schema import parse_chat, parse_prompts, parse_text
from gateway.http.fields import MOST_ITEMS, decode_object
from gateway.http.responses.schema import parse_create
from gateway.http.responses.websocket import MAX_PENDING_CHARACTERS
from gateway.limits import Limits
from gateway.settings import Settings
from models.errors import UserError
from tests.fake_engine import ENDLESS, BracketTemplate, FakeEngine
from tests.http_serving import ask, serving, socket_to, until
from tests.patience import PATIENCE

MAX_MESSAGE = Limits().message_bytes
MANY = MOST_ITEMS + 1
FEW = 500
"""Calls of Python's functions that it takes to refuse one. Reading them all takes one for each at
least: seconds, on any machine, and more memory than it has."""

PARSERS: dict[str, Callable[..., object]] = {
    "responses": parse_create,
    "chat/completions": parse_chat,
    "completions": parse_text,
}


def calls_of(work: Callable[[], object]) -> int:
    """How many functions of Python `work` calls: what it does, whatever else the machine does."""
    count = 0

    def counted(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(counted)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize(
    ("path", "document", "param"),
    [
        ("responses", {"input": [{"role": "user", "content": ""}] * MANY}, "input"),
        (
            "responses",
            {"input": [{"role": "user", "content": [{"type": "text", "text": ""}] * MANY}]},
            "input[0].content",
        ),
        ("responses", {"input": "x", "include": ["x"] * MANY}, "include"),
        ("responses", {"input": "x", "metadata": {str(n): "" for n in range(MANY)}}, "metadata"),
        ("responses", {"input": "x", "logit_bias": {str(n): 1 for n in range(MANY)}}, "logit_bias"),
        ("responses", {"input": "x", "stop": ["x"] * MANY}, "stop"),
        ("responses", {"input": "x", "stop_token_ids": [1] * MANY}, "stop_token_ids"),
        (
            "responses",
            {"input": "x", "speculation": {"k" * 900_000: 1}},
            f"speculation.{'k' * 77}...",
        ),
        ("chat/completions", {"messages": [{"role": "user", "content": ""}] * MANY}, "messages"),
        ("completions", {"prompt": ["x"] * MANY}, "prompt"),
    ],
)
async def test_many_of_a_kind_are_refused(path: str, document: dict[str, Any], param: str) -> None:
    async with (
        serving(FakeEngine()) as served,
        aiohttp.ClientSession() as session,
        session.post(f"{served.base}/{path}", json=document) as response,
    ):
        assert (response.status, (await response.json())["error"]["param"]) == (400, param)
    body = orjson.dumps(document)

    def refuse() -> None:
        with pytest.raises(UserError):
            PARSERS[path](decode_object(body, Limits().nesting), Settings())

    assert calls_of(refuse) < FEW < MANY


def test_as_many_as_are_taken() -> None:
    items = [{"role": "user", "content": ""}] * MOST_ITEMS
    assert calls_of(lambda: parse_create({"input": items}, Settings())) > MOST_ITEMS
    assert len(parse_create({"input": items}, Settings()).messages) == MOST_ITEMS
    with pytest.raises(UserError):
        parse_create({"input": [*items, items[0]]}, Settings())


def test_token_ids_by_the_hundred_thousand() -> None:
    ids = [7] * 500_000
    assert parse_prompts(ids) == (tuple(ids),)
    assert calls_of(lambda: parse_prompts(ids)) < FEW
    for wrong, param in (([*ids, -1], "prompt[500000]"), ([7, True], "prompt[1]")):
        with pytest.raises(UserError) as refused:
            parse_prompts(wrong)
        assert refused.value.param == param


async def test_requests_that_wait_are_bounded_by_their_size() -> None:
    engine = FakeEngine(ENDLESS, pace=0.02)
    large = "x" * (MAX_MESSAGE - 100)
    async with serving(engine) as served, socket_to(served) as socket:
        await socket.send_json({"type": "response.create", "input": "first"})
        await until(lambda: engine.running == 1)
        for _ in range(1 + MAX_PENDING_CHARACTERS // MAX_MESSAGE):
            await socket.send_json({"type": "response.create", "input": large})
        while (event := await socket.receive_json(timeout=PATIENCE))["type"] != "error":
            pass
        assert (event["status"], event["error"]["code"]) == (429, "queue_full")
        # A small one still has room: of it nothing is heard, of the one behind it is.
        await socket.send_json({"type": "response.create", "input": "small"})
        await socket.send_str("{")
        while (event := await socket.receive_json(timeout=PATIENCE))["type"] != "error":
            pass
        assert event["error"]["code"] == "invalid_json"


async def test_a_request_is_not_held_while_it_is_answered() -> None:
    marked = 54_321
    zeros = "0," * (marked - 1) + "0"
    engine = FakeEngine(ENDLESS, pace=0.02)
    async with serving(engine) as served, socket_to(served) as socket:
        await socket.send_str(f'{{"type":"response.create","input":"x","unknown":[{zeros}]}}')
        await until(lambda: engine.running == 1)
        assert not [o for o in gc.get_objects() if type(o) is list and len(o) == marked]


class WatchedTemplate(BracketTemplate):
    """Notes whether it renders on the loop's own thread."""

    def __init__(self) -> None:
        self.on_loop: list[bool] = []

    def render(self, *arguments: Any, **options: Any) -> str:
        self.on_loop.append(threading.current_thread() is threading.main_thread())
        return super().render(*arguments, **options)


async def test_many_turns_are_rendered_beside_running_streams() -> None:
    engine = FakeEngine("ok")
    engine.template = template = WatchedTemplate()
    turn = {"role": "user", "content": ""}
    async with serving(engine) as served, socket_to(served) as socket:
        await ask(socket, input=[turn])
        await ask(socket, input=[turn] * 300)
        async with aiohttp.ClientSession() as session:
            await session.post(f"{served.base}/chat/completions", json={"messages": [turn] * 300})
    assert template.on_loop == [True, False, False]
