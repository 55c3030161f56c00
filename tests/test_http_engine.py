"""The real engine behind the real wire, on the tiny package."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI, OpenAI

from gateway.engine.engine import Engine
from gateway.engine.options import EngineOptions
from models.package import load_package
from models.tokenizer import StreamDecoder
from tests.http_serving import Served, ask, serving, socket_to, until

PROMPT = "the other and the one and the other and the one and the"


@pytest.fixture
async def engine(tiny_package: Path) -> AsyncIterator[Engine]:
    started = await Engine.start(load_package(tiny_package), EngineOptions(slots=2, queue=4))
    yield started
    await started.close()


@pytest.fixture
async def served(engine: Engine) -> AsyncIterator[Served]:
    async with serving(engine) as running:
        yield running


def text_of(response: dict[str, Any]) -> str:
    text: str = response["output"][0]["content"][0]["text"]
    return text


def deltas_of(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event for event in events if event["type"] == "response.output_text.delta"]


async def test_both_clients_get_the_same_answer_with_and_without_speculation(
    served: Served,
) -> None:
    request: Any = {"type": "response.create", "input": PROMPT, "max_output_tokens": 60}

    def synchronous() -> str:
        with (
            OpenAI(base_url=served.base, api_key="none") as client,
            client.responses.connect() as connection,
        ):
            connection.send({**request, "speculation": {"off": True}})
            parts = []
            for event in connection:
                if event.type == "response.output_text.delta":
                    parts.append(event.delta)
                if event.type in ("response.completed", "response.incomplete"):
                    break
        return "".join(parts)

    parts, last = [], None
    async with (
        AsyncOpenAI(base_url=served.base, api_key="none") as client,
        client.responses.connect() as connection,
    ):
        await connection.send({**request, "speculation": {"policy": "fixed", "length": 4}})
        async for event in connection:
            if event.type == "response.output_text.delta":
                parts.append(event.delta)
            if event.type in ("response.completed", "response.incomplete"):
                last = event.response
                break
    assert last is not None
    assert last.usage is not None
    assert last.output_text == "".join(parts)
    assert 0 < last.usage.output_tokens <= 60
    assert await asyncio.to_thread(synchronous) == "".join(parts)


async def test_a_continuation_finds_its_slot_again(served: Served) -> None:
    async with socket_to(served) as socket:
        first = (await ask(socket, input=PROMPT, max_output_tokens=20))[-1]["response"]
        second = (
            await ask(socket, input="and", max_output_tokens=5, previous_response_id=first["id"])
        )[-1]["response"]
    seen = first["usage"]["input_tokens"] + first["usage"]["output_tokens"]
    assert first["usage"]["input_tokens_details"]["cached_tokens"] == 0
    # All but the last token, whose K/V was never needed.
    assert second["usage"]["input_tokens_details"]["cached_tokens"] >= seen - 1


async def test_provenance_adds_up_to_the_answer(served: Served, engine: Engine) -> None:
    async with socket_to(served) as socket:
        events = await ask(
            socket,
            input=PROMPT,
            max_output_tokens=60,
            include=["speculation"],
            speculation={"policy": "fixed", "length": 4},
        )
    response = events[-1]["response"]
    marks = [event["speculation"] for event in deltas_of(events)]
    ids = [token for mark in marks for token in mark["ids"]]
    sources = [source for mark in marks for source in mark["sources"]]
    assert len(ids) == len(sources) == response["usage"]["output_tokens"]
    assert StreamDecoder(engine.tokenizer).push(ids) == text_of(response)
    assert sources.count("ngram") == response["timings"]["draft_n_accepted"]
    timings = response["timings"]
    assert timings["tau"] == pytest.approx(1 + timings["draft_n_accepted"] / timings["rounds"])


async def test_killed_clients_free_their_slots_within_a_round(
    served: Served, engine: Engine
) -> None:
    for _ in range(30):
        async with socket_to(served) as socket:
            await socket.send_json({"type": "response.create", "input": PROMPT})
            await until(lambda: engine.status().free_slots < 2)
            socket._response.connection.transport.abort()  # type: ignore[union-attr]
        await until(lambda: engine.status().free_slots == 2, 2)
    assert served.gateway.running == 0
    async with socket_to(served) as socket:
        response = (await ask(socket, input=PROMPT, max_output_tokens=5))[-1]["response"]
        assert response["usage"]["output_tokens"] <= 5


async def test_cancel_ends_with_what_there_is(served: Served, engine: Engine) -> None:
    async with socket_to(served) as socket:
        await socket.send_json({"type": "response.create", "input": PROMPT})
        created = await socket.receive_json(timeout=5)
        await socket.send_json(
            {"type": "response.cancel", "response_id": created["response"]["id"]}
        )
        event = created
        while event["type"] not in ("response.incomplete", "response.completed"):
            event = await socket.receive_json(timeout=5)
        assert event["response"]["status"] == "cancelled"
        assert event["response"]["timings"]["exact"] is True
        await until(lambda: engine.status().free_slots == 2, 2)


async def test_a_prompt_beyond_the_context_is_refused_with_the_numbers(served: Served) -> None:
    async with socket_to(served) as socket:
        (error,) = await ask(socket, input=PROMPT * 50)
        assert (error["status"], error["error"]["code"]) == (400, "context_length_exceeded")
        assert "256" in error["error"]["message"]
        assert error["error"]["param"] == "input"
        assert (await ask(socket, input="the", max_output_tokens=3))[-1]["type"] != "error"


async def test_lanes_share_the_target(served: Served) -> None:
    alone = []
    async with socket_to(served) as socket:
        for text in ("the one", "and the other"):
            events = await ask(socket, input=text, max_output_tokens=30)
            alone.append(text_of(events[-1]["response"]))
        together: dict[str, str] = {}
        for lane, text in (("a", "the one"), ("b", "and the other")):
            await socket.send_json(
                {
                    "type": "response.create",
                    "input": text,
                    "max_output_tokens": 30,
                    "stream_id": lane,
                }
            )
        while len(together) < 2:
            event = await socket.receive_json(timeout=10)
            if event["type"] in ("response.completed", "response.incomplete"):
                together[event["stream_id"]] = text_of(event["response"])
    assert [together["a"], together["b"]] == alone
