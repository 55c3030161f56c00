"""openai-python, unmodified, and its types."""

from __future__ import annotations

import asyncio
from typing import Any, get_args

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.responses import Response
from openai.types.responses.responses_server_event import ResponsesServerEvent

from tests.fake_engine import FRESH_SEED, MODEL, FakeEngine
from tests.http_serving import ask, serving, socket_to
from tests.patience import PATIENCE

KEYS = [
    "id",
    "object",
    "created_at",
    "completed_at",
    "status",
    "incomplete_details",
    "model",
    "previous_response_id",
    "instructions",
    "output",
    "error",
    "tools",
    "tool_choice",
    "truncation",
    "parallel_tool_calls",
    "text",
    "top_p",
    "temperature",
    "presence_penalty",
    "frequency_penalty",
    "top_logprobs",
    "reasoning",
    "usage",
    "max_output_tokens",
    "max_tool_calls",
    "store",
    "background",
    "service_tier",
    "metadata",
    "safety_identifier",
    "prompt_cache_key",
]
ADDED = ("timings", "stop_reason")
REPORTED = ("temperature", "top_p", "presence_penalty", "frequency_penalty", "top_logprobs", "seed")
ORDER = [
    "response.created",
    "response.in_progress",
    "response.output_item.added",
    "response.content_part.added",
    "response.output_text.delta",
    "response.output_text.done",
    "response.content_part.done",
    "response.output_item.done",
    "response.completed",
]


def event_types() -> dict[str, Any]:
    union = get_args(ResponsesServerEvent)[0]
    return {get_args(model.model_fields["type"].annotation)[0]: model for model in get_args(union)}


def validate(event: dict[str, Any]) -> None:
    event_types()[event["type"]].model_validate(event, strict=True)


async def test_async_client_streams_two_turns() -> None:
    engine = FakeEngine("Hello, world")
    async with serving(engine) as served:
        client = AsyncOpenAI(base_url=served.base, api_key="none")
        async with client.responses.connect() as connection:
            await connection.send({"type": "response.create", "model": MODEL, "input": "Hi"})
            text, first = "", None
            async for event in connection:
                if event.type == "response.output_text.delta":
                    text += event.delta
                if event.type == "response.completed":
                    first = event.response
                    break
            assert first is not None
            assert text == first.output_text == "Hello, world"
            await connection.send(
                {
                    "type": "response.create",
                    "model": MODEL,
                    "input": "And?",
                    "previous_response_id": first.id,
                }
            )
            async for event in connection:
                if event.type == "response.completed":
                    assert event.response.previous_response_id == first.id
                    break
        await client.close()
    assert engine.prompt() == "<user>Hi</><assistant>Hello, world</><user>And?</><assistant>"


async def test_sync_client_streams() -> None:
    def talk(base: str) -> str:
        with (
            OpenAI(base_url=base, api_key="none") as client,
            client.responses.connect() as connection,
        ):
            connection.response.create(model=MODEL, input="Hi")
            text = ""
            for event in connection:
                if event.type == "response.output_text.delta":
                    text += event.delta
                if event.type == "response.completed":
                    break
        return text

    async with serving(FakeEngine("Hello, world")) as served:
        assert await asyncio.to_thread(talk, served.base) == "Hello, world"


async def test_client_posts_whole_and_streamed() -> None:
    async with (
        serving(FakeEngine("Hello, world")) as served,
        AsyncOpenAI(base_url=served.base, api_key="none") as client,
    ):
        response = await client.responses.create(model=MODEL, input="Hi", temperature=0)
        assert response.output_text == "Hello, world"
        stream = await client.responses.create(
            model=MODEL, input="Hi", stream=True, previous_response_id=response.id
        )
        events = [event async for event in stream]
        deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
        assert "".join(deltas) == "Hello, world"
        with pytest.raises(openai.NotFoundError) as missing:
            await client.responses.create(model=MODEL, input="Hi", previous_response_id="resp_x")
        assert missing.value.code == "previous_response_not_found"
        with pytest.raises(openai.BadRequestError) as refused:
            await client.responses.create(model=MODEL, input="Hi", temperature=2.5)
        assert (refused.value.code, refused.value.param) == ("unsupported_value", "temperature")


async def test_client_lists_models() -> None:
    async with (
        serving(FakeEngine()) as served,
        AsyncOpenAI(base_url=served.base, api_key="none") as client,
    ):
        listed = [model.id async for model in await client.models.list()]
        assert listed == [MODEL]
        assert (await client.models.retrieve(MODEL)).owned_by == "outpace"
        with pytest.raises(openai.NotFoundError):
            await client.models.retrieve("gpt-4")


@pytest.mark.parametrize("include", [None, ["speculation"]])
async def test_every_event_is_what_the_types_say(include: list[str] | None) -> None:
    async with serving(FakeEngine("abc")) as served, socket_to(served) as socket:
        events = await ask(
            socket,
            input=[{"role": "user", "content": [{"type": "input_text", "text": "Hi"}]}],
            instructions="Be brief.",
            metadata={"a": "b"},
            stream_id="lane.1",
            include=include,
        )
    for event in events:
        validate(event)
        assert event["stream_id"] == "lane.1"
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert list(dict.fromkeys(event["type"] for event in events)) == ORDER
    deltas = [event for event in events if event["type"] == "response.output_text.delta"]
    assert "".join(event["delta"] for event in deltas) == "abc"
    assert all(("speculation" in event) == (include is not None) for event in deltas)
    if include:
        assert [event["speculation"]["source"] for event in deltas] == ["target", "ngram", "target"]
        assert deltas[1]["speculation"] == {
            "source": "ngram",
            "sources": ["ngram"],
            "ids": [ord("b")],
            "texts": ["b"],
            "token_rounds": [1],
            "token_ms": [10.0],
            "round": 1,
            "verified": 0,
            "rounds": [
                {
                    "round": 1,
                    "ms": 10.0,
                    "draft_ms": 0.25,
                    "verify_ms": 9.0,
                    "verified": 0,
                    "accepted": 0,
                }
            ],
        }


async def test_the_response_object_is_whole() -> None:
    async with serving(FakeEngine("abc")) as served, socket_to(served) as socket:
        events = await ask(socket, input="Hi", metadata={"a": "b"}, max_output_tokens=50)
    response = events[-1]["response"]
    assert [key for key in KEYS if key not in response] == []
    assert [key for key in KEYS if key not in events[0]["response"]] == []
    Response.model_validate(response, strict=True)
    assert events[0]["response"]["status"] == "in_progress"
    assert response["status"] == "completed"
    assert response["metadata"] == {"a": "b"}
    assert response["max_output_tokens"] == 50
    prompt = len("<user>Hi</><assistant>")
    assert response["usage"] == {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": 3, "cache_write_tokens": prompt - 3},
        "output_tokens": 3,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": prompt + 3,
    }
    timings = response["timings"]
    assert (timings["tau"], timings["alpha"], timings["lossless"]) == (0.75, 0.75, True)
    assert (timings["drafter"], timings["policy"], timings["rule"]) == ("ngram", "cost", "coupled")
    assert response["output"][0]["content"][0]["text"] == "abc"
    assert response["completed_at"] >= response["created_at"]


async def test_the_response_object_says_what_was_used() -> None:
    engine = FakeEngine("abc")
    async with serving(engine, temperature=0.25) as served, socket_to(served) as socket:
        plain = await ask(socket, input="Hi")
        asked = {
            "temperature": 1,
            "top_p": 0.9,
            "presence_penalty": 1,
            "frequency_penalty": -0.5,
            "top_logprobs": 4,
            "top_k": 40,
            "min_p": 0.05,
            "repetition_penalty": 1.2,
            "min_tokens": 2,
            "seed": 1 << 60,
            "logit_bias": {"50": -100, "7": 0.5},
            "stop": "END",
            "stop_token_ids": [5],
            "ignore_eos": True,
        }
        full = await ask(socket, input="Hi", **asked)
        neutral = await ask(
            socket, input="Hi", top_k=0, min_p=0, repetition_penalty=1, stop=[], logit_bias={}
        )
    for events in (plain, full, neutral):
        for event in events:
            validate(event)
        assert events[0]["response"].items() >= _sampled(events[-1]["response"]).items()
    assert _sampled(plain[-1]["response"]) == {
        "temperature": 0.25,
        "top_p": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "top_logprobs": 0,
        "seed": FRESH_SEED,
    }
    assert _sampled(full[-1]["response"]) == {**asked, "stop": ["END"]}
    for name in ("temperature", "top_p", "presence_penalty", "frequency_penalty"):
        assert type(full[-1]["response"][name]) is float
    assert _sampled(neutral[-1]["response"]) == _sampled(plain[-1]["response"])
    assert engine.requests[1].sampling.logit_bias == ((50, -100.0), (7, 0.5))


def _sampled(response: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in response.items() if name not in {*KEYS, *ADDED}} | {
        name: response[name] for name in REPORTED
    }


async def test_a_lossy_rule_is_marked() -> None:
    async with serving(FakeEngine("abc")) as served, socket_to(served) as socket:
        lossy = await ask(socket, input="Hi", speculation={"rule": "typical", "epsilon": 0.2})
        lossless = await ask(socket, input="Hi", speculation={"rule": "classic"})
    told = [events[-1]["response"]["timings"] for events in (lossy, lossless)]
    assert [(each["rule"], each["lossless"]) for each in told] == [
        ("typical", False),
        ("classic", True),
    ]
    assert told[0]["accept_ms"] == 0.4


async def test_a_stop_string_completes_the_response_and_is_named() -> None:
    async with serving(FakeEngine("one END two")) as served, socket_to(served) as socket:
        events = await ask(socket, input="Hi", stop=["END", "two"])
        cut = await ask(socket, input="Hi", stop=["END", "two"], max_output_tokens=2)
        whole = await ask(socket, input="Hi")
    for event in [*events, *cut, *whole]:
        validate(event)
    assert events[-1]["type"] == "response.completed"
    assert events[-1]["response"]["output"][0]["content"][0]["text"] == "one "
    assert events[-1]["response"]["stop_reason"] == "END"
    for unfinished in (*events[:-1], *cut, *whole):
        assert unfinished.get("response", {"stop_reason": None})["stop_reason"] is None


async def test_long_ids_and_names_are_not_repeated_whole() -> None:
    async with serving(FakeEngine("abc")) as served, socket_to(served) as socket:
        (model,) = await ask(socket, input="Hi", model="m" * 5000)
        (previous,) = await ask(socket, input="Hi", previous_response_id="r" * 5000)
    assert model["error"]["message"].startswith(f"The model '{'m' * 77}...' does not exist here")
    assert previous["error"]["message"] == f"Previous response '{'r' * 77}...' not found."


async def test_incomplete_failed_steered_and_refused_are_what_the_types_say() -> None:
    async with serving(FakeEngine("abc")) as served, socket_to(served) as socket:
        cut = await ask(socket, input="Hi", max_output_tokens=2)
        refused = await ask(socket, input=7, stream_id="x")
        await socket.send_json(
            {"type": "response.steer", "previous_response_id": "resp_1", "input": "left"}
        )
        steered = await socket.receive_json(timeout=PATIENCE)
        served.gateway.engine.failure = RuntimeError("the device is gone")
        failed = await ask(socket, input="Hi")
    for event in [*cut, *refused, steered, *failed]:
        validate(event)
    assert cut[-1]["type"] == "response.incomplete"
    assert cut[-1]["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
    assert cut[-1]["response"]["output"][0]["status"] == "incomplete"
    assert cut[-1]["response"]["output"][0]["content"][0]["text"] == "ab"
    assert refused[0].pop("request_id").startswith("req_")
    assert refused == [
        {
            "type": "error",
            "status": 400,
            "error": {
                "type": "invalid_request_error",
                "code": "invalid_type",
                "message": "input must be a string or an array, not an integer.",
                "param": "input",
            },
            "stream_id": "x",
        }
    ]
    assert steered["type"] == "response.steer.failed"
    assert steered["error"]["code"] == "steering_not_supported"
    assert steered["steer"] == {"input": "left", "previous_response_id": "resp_1"}
    assert failed[-1]["type"] == "response.failed"
    assert failed[-1]["response"]["error"]["code"] == "server_error"
    assert "device" not in failed[-1]["response"]["error"]["message"]
