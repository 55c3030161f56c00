"""Clients that leave in the middle of answers of a form, and answers that are cancelled there."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.engine.engine import Engine
from gateway.engine.options import EngineOptions
from gateway.engine.requests import GenerationRequest
from models.chat_template import ChatTemplate
from models.package import load_package
from models.sampling.parameters import Sampling
from tests.chat_requests import post
from tests.constraints_support import RECORD, json_schema
from tests.engine_support import make_prompt, read
from tests.http_serving import Served, serving, until

NUMBERS: Any = {
    "type": "array",
    "items": {"type": "integer", "minimum": 0, "maximum": 99},
    "minItems": 30,
    "maxItems": 30,
}
FORMS: list[dict[str, Any]] = [
    {
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "numbers", "schema": NUMBERS},
        }
    },
    {"response_format": {"type": "regex", "regex": "([a-z]{3} ){30}"}},
    {
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "f",
                    "parameters": {
                        "type": "object",
                        "properties": {"n": NUMBERS},
                        "required": ["n"],
                        "additionalProperties": False,
                    },
                },
            }
        ],
        "tool_choice": "required",
        "parallel_tool_calls": False,
    },
]
STREAMS = 50


@pytest.fixture
async def engine(tiny_package: Path) -> AsyncIterator[Engine]:
    options = EngineOptions(slots=4, queue=STREAMS, context=256)
    started = await Engine.start(load_package(tiny_package), options)
    started.template = ChatTemplate("{# tools #}{% for m in messages %}{{ m.content }}{% endfor %}")
    yield started
    await started.close()


def fields(index: int) -> dict[str, Any]:
    return {
        **FORMS[index % len(FORMS)],
        "messages": [{"role": "user", "content": f"a{index % 5}"}],
        "temperature": 1.0,
        "seed": index,
        "max_tokens": 200,
    }


async def drop(served: Served, index: int, random_: random.Random) -> None:
    """Read some of the stream, and leave."""
    chunks = random_.choice([0, 0, 1, 2, 5, 9, 15])
    body = {**fields(index), "stream": True}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{served.base}/chat/completions", json=body) as response,
    ):
        assert response.status == 200
        for _ in range(2 * chunks):
            await response.content.readline()
        response.close()


async def said(served: Served, index: int) -> tuple[Any, Any]:
    """What is said or called, and why it ended."""
    (choice,) = (await post(served, **fields(index)))["choices"]
    message = choice["message"]
    calls = [call["function"] for call in message.get("tool_calls", ())]
    return (message["content"], calls), choice["finish_reason"]


async def test_streams_that_are_dropped_leave_nothing_behind(engine: Engine) -> None:
    random_ = random.Random(5)
    async with serving(engine) as served:
        expected = [await said(served, index) for index in range(3)]
        assert [reason for _, reason in expected] == ["stop", "stop", "tool_calls"]
        async with asyncio.timeout(60):
            await asyncio.gather(*(drop(served, index, random_) for index in range(STREAMS)))

        def idle() -> bool:
            status = engine.status()
            return status.free_slots == 4 and status.waiting == served.gateway.running == 0

        await until(idle)
        assert [await said(served, index) for index in range(3)] == expected
        many = await asyncio.gather(*(said(served, index % 3) for index in range(12)))
        assert many == [expected[index % 3] for index in range(12)]
    assert engine.constraints._jobs == {}


async def test_answers_that_are_cancelled_at_any_moment(engine: Engine) -> None:
    """Before they are compiled, while they wait for a slot, and in any round."""
    random_ = random.Random(11)

    def request(index: int) -> GenerationRequest:
        schema = {**NUMBERS, "minItems": 30 + index % 7, "maxItems": 30 + index % 7}
        return GenerationRequest(
            make_prompt(12, seed=index),
            max_tokens=150,
            constraint=json_schema(schema),
            sampling=Sampling(temperature=1.0, seed=index),
        )

    async def cancelled(index: int) -> str:
        async with engine.open(request(index)) as generation:
            if index % 2:
                asyncio.get_running_loop().call_later(random_.random() * 0.3, generation.cancel)
            else:
                left = random_.randint(0, 8)
                async for _ in generation:
                    left -= 1
                    if left < 0:
                        return "left"
            return (await read(generation)).finished.reason

    async with asyncio.timeout(60):
        reasons = set(await asyncio.gather(*(cancelled(index) for index in range(STREAMS))))
    assert {"left", "cancelled"} <= reasons
    await until(lambda: engine.status().free_slots == 4)
    answer = json_schema(RECORD)
    asked = GenerationRequest(make_prompt(9), max_tokens=100, constraint=answer)
    async with engine.open(asked) as generation:
        first = await read(generation)
    async with engine.open(asked) as generation:
        assert (await read(generation)).ids == first.ids
    assert first.finished.reason == "stop"
