"""Functions are called over the wire: scripted, with the real clients, and on the tiny package."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import jsonschema
import pytest
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response

from gateway.calls.parts import CallBegun, CallDelta
from gateway.engine.engine import Engine
from gateway.engine.options import EngineOptions
from gateway.http.completions.calls import chat_delta
from models.chat_template import ChatTemplate
from models.errors import UserError
from models.package import load_package
from tests.calls_support import WEATHER
from tests.chat_requests import choice_chunks, post, stream
from tests.checkpoints import CHAT_TEMPLATE
from tests.fake_engine import MODEL, FakeEngine
from tests.http_serving import Served, ask, serving, socket_to
from tests.test_http_clients import validate

FUNCTION = {
    "name": WEATHER.name,
    "description": WEATHER.description,
    "parameters": WEATHER.parameters,
}
CHAT: Any = [{"type": "function", "function": FUNCTION}]
TOOLS: Any = [{"type": "function", **FUNCTION, "strict": True}]
ARGUMENTS = '{"town": "Bonn"}'
CALL = f'<tool_call>\n{{"name": "get_weather", "arguments": {ARGUMENTS}}}\n</tool_call>'
TEXT = f"Let me see.\n{CALL}"


def thinking_engine(answer: str) -> FakeEngine:
    engine = FakeEngine(answer)
    engine.template.source = "{{ tools }} <tool_call> <think></think>"
    return engine


async def test_chat_calls_whole_and_streamed() -> None:
    engine = FakeEngine(TEXT)
    async with serving(engine) as served:
        whole = await post(served, tools=CHAT)
        events = await stream(served, tools=CHAT, stream_options={"include_usage": True})
    ChatCompletion.model_validate(whole, strict=True)
    (choice,) = whole["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] == "Let me see."
    (call,) = choice["message"]["tool_calls"]
    assert call["function"] == {"name": "get_weather", "arguments": ARGUMENTS}
    assert call["id"].startswith("call_")
    for event in events[:-1]:
        ChatCompletionChunk.model_validate(event, strict=True)
    chunks = choice_chunks(events)
    calls = [each for chunk in chunks for each in chunk["delta"].get("tool_calls", ())]
    assert calls[0]["function"] == {"name": "get_weather", "arguments": ""}
    assert calls[0]["id"] != call["id"]
    assert all(each["index"] == 0 for each in calls)
    assert len(calls) > 3, "arguments are streamed"
    assert "".join(each["function"]["arguments"] for each in calls) == ARGUMENTS
    assert "".join(chunk["delta"].get("content", "") for chunk in chunks) == "Let me see."
    assert chunks[-1]["finish_reason"] == "tool_calls"
    assert engine.prompt() == "<tools>get_weather</><user>Hi</><assistant>"


async def test_a_call_alone_has_no_content() -> None:
    async with serving(FakeEngine(CALL)) as served:
        (choice,) = (await post(served, tools=CHAT))["choices"]
        cut = await post(served, tools=CHAT, max_tokens=len(CALL) - 20)
        unasked = await post(served, tools=CHAT, tool_choice="none")
        plain = await post(served)
    assert choice["message"]["content"] is None
    assert cut["choices"][0]["finish_reason"] == "length"
    assert cut["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] == '{"town": "'
    for body in (unasked, plain):
        assert body["choices"][0]["message"]["content"] == CALL
        assert "tool_calls" not in body["choices"][0]["message"]


async def test_chat_results_go_back() -> None:
    engine = FakeEngine("Rain.")
    async with (
        serving(engine) as served,
        AsyncOpenAI(base_url=served.base, api_key="none") as client,
    ):
        engine.answer = CALL
        messages: list[Any] = [{"role": "user", "content": "Hi"}]
        first = await client.chat.completions.create(model=MODEL, messages=messages, tools=CHAT)
        message = first.choices[0].message
        assert message.tool_calls is not None
        engine.answer = "Rain."
        messages += [
            message.model_dump(exclude_none=True),
            {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "wet"},
        ]
        second = await client.chat.completions.create(model=MODEL, messages=messages, tools=CHAT)
    assert second.choices[0].message.content == "Rain."
    assert second.choices[0].finish_reason == "stop"
    assert engine.prompt() == (
        f"<tools>get_weather</><user>Hi</><assistant>{CALL}</><tool>get_weather\nwet</><assistant>"
    )


ORDER = [
    "response.created",
    "response.in_progress",
    "response.output_item.added",
    "response.content_part.added",
    "response.output_text.delta",
    "response.output_text.done",
    "response.content_part.done",
    "response.output_item.done",
    "response.function_call_arguments.delta",
    "response.function_call_arguments.done",
    "response.completed",
]


async def test_responses_call() -> None:
    async with serving(FakeEngine(TEXT)) as served, socket_to(served) as socket:
        events = await ask(socket, input="Hi", tools=TOOLS, include=["speculation"])
    for event in events:
        validate(event)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert list(dict.fromkeys(event["type"] for event in events)) == ORDER
    response = events[-1]["response"]
    Response.model_validate(response, strict=True)
    message, call = response["output"]
    assert message["content"][0]["text"] == "Let me see."
    assert (message["status"], call["status"]) == ("completed", "completed")
    assert (call["type"], call["name"], call["arguments"]) == (
        "function_call",
        "get_weather",
        ARGUMENTS,
    )
    added = [event for event in events if event["type"] == "response.output_item.added"]
    assert [event["output_index"] for event in added] == [0, 1]
    assert added[1]["item"] == {**call, "arguments": "", "status": "in_progress"}
    deltas = [event for event in events if event["type"].endswith("arguments.delta")]
    assert "".join(event["delta"] for event in deltas) == ARGUMENTS
    assert {event["item_id"] for event in deltas} == {call["id"]}
    told = [event["speculation"]["ids"] for event in events if "speculation" in event]
    assert "".join(chr(token) for ids in told for token in ids).endswith('Bonn"}')
    assert (response["tools"], response["tool_choice"]) == (TOOLS, "auto")


async def test_responses_go_on_from_a_call() -> None:
    engine = FakeEngine(CALL)
    async with serving(engine) as served, socket_to(served) as socket:
        first = (await ask(socket, input="Hi", tools=TOOLS))[-1]["response"]
        (call,) = first["output"]
        output = {"type": "function_call_output", "call_id": call["call_id"], "output": "wet"}
        engine.answer = "Rain."
        kept = await ask(socket, input=[output], previous_response_id=first["id"], tools=TOOLS)
        expected = engine.prompt()
        items = [{"role": "user", "content": "Hi"}, call, output]
        await ask(socket, input=items, tools=TOOLS)
    assert kept[-1]["response"]["output"][0]["content"][0]["text"] == "Rain."
    assert expected == engine.prompt()
    assert expected.endswith(f"<assistant>{CALL}</><tool>get_weather\nwet</><assistant>")


async def test_a_call_that_the_limit_cuts_is_incomplete() -> None:
    async with serving(FakeEngine(CALL)) as served, socket_to(served) as socket:
        events = await ask(socket, input="Hi", tools=TOOLS, max_output_tokens=len(CALL) - 20)
        empty = await ask(socket, input="Hi", tools=TOOLS, max_output_tokens=5)
    for event in (*events, *empty):
        validate(event)
    response = events[-1]["response"]
    assert response["status"] == "incomplete"
    assert [item["status"] for item in response["output"]] == ["incomplete"]
    assert empty[-1]["response"]["output"][0]["content"][0]["text"] == CALL[:5]


async def test_a_call_that_the_model_breaks_off_is_not_told_as_whole() -> None:
    async with serving(FakeEngine(CALL[:-20])) as served, socket_to(served) as socket:
        events = await ask(socket, input="Hi", tools=TOOLS)
        (choice,) = (await post(served, tools=CHAT))["choices"]
        chunks = choice_chunks(await stream(served, tools=CHAT))
    for event in events:
        validate(event)
    response = events[-1]["response"]
    Response.model_validate(response, strict=True)
    assert (events[-1]["type"], response["status"]) == ("response.incomplete", "incomplete")
    assert response["incomplete_details"] is None
    assert [item["status"] for item in response["output"]] == ["incomplete"]
    assert choice["finish_reason"] == chunks[-1]["finish_reason"] == "stop"
    assert choice["message"]["tool_calls"][0]["function"]["arguments"] == '{"town": "'


@pytest.mark.parametrize("length", [1, 5, len("<tool_call>"), 20])
async def test_the_mark_of_a_call_that_must_come_is_no_text(length: int) -> None:
    fields = {"tools": CHAT, "tool_choice": "required", "max_tokens": length}
    async with serving(FakeEngine(CALL)) as served, socket_to(served) as socket:
        (choice,) = (await post(served, **fields))["choices"]
        chunks = choice_chunks(await stream(served, **fields))
        events = await ask(
            socket, input="Hi", tools=TOOLS, tool_choice="required", max_output_tokens=length
        )
    assert not choice["message"]["content"]
    assert "tool_calls" not in choice["message"]
    assert choice["finish_reason"] == chunks[-1]["finish_reason"] == "length"
    assert "".join(chunk["delta"].get("content", "") for chunk in chunks) == ""
    response = events[-1]["response"]
    assert response["status"] == "incomplete"
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    assert [item["content"][0]["text"] for item in response["output"]] == [""]


async def test_an_answer_of_a_form_is_no_call_whatever_it_holds() -> None:
    answer = json.dumps({"a": f"so: {CALL}"})
    form = {"type": "json_object"}
    async with serving(FakeEngine(answer)) as served:
        (choice,) = (await post(served, tools=CHAT, response_format=form))["choices"]
        (cut,) = (await post(served, tools=CHAT, response_format=form, max_tokens=15))["choices"]
    assert choice["message"]["content"] == answer
    assert (choice["finish_reason"], cut["finish_reason"]) == ("stop", "length")
    assert cut["message"]["content"] == answer[:15]
    async with serving(FakeEngine(CALL)) as served:
        (choice,) = (await post(served, tools=CHAT, response_format=form))["choices"]
        (cut,) = (await post(served, tools=CHAT, response_format=form, max_tokens=5))["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert not cut["message"]["content"]


async def test_thoughts_are_told_apart() -> None:
    answer = "<think>\nHm, well.\n</think>\n\nYes."
    engine = thinking_engine(answer)
    async with serving(engine) as served, socket_to(served) as socket:
        events = await ask(socket, input="Hi", reasoning={"effort": "none"})
        whole = await post(served, reasoning_effort="low")
        chunks = choice_chunks(await stream(served))
    for event in events:
        validate(event)
    response = events[-1]["response"]
    Response.model_validate(response, strict=True)
    reasoning, message = response["output"]
    assert reasoning["content"] == [{"type": "reasoning_text", "text": "Hm, well."}]
    assert (reasoning["type"], reasoning["summary"]) == ("reasoning", [])
    assert message["content"][0]["text"] == "Yes."
    assert response["reasoning"]["effort"] == "none"
    thought = len("<think>\nHm, well.\n</think>")
    assert response["usage"]["output_tokens_details"] == {"reasoning_tokens": thought}
    (choice,) = whole["choices"]
    assert choice["message"]["reasoning_content"] == "Hm, well."
    assert choice["message"]["content"] == "Yes."
    assert whole["usage"]["completion_tokens_details"] == {
        "reasoning_tokens": thought,
        "accepted_prediction_tokens": 0,
        "rejected_prediction_tokens": 0,
    }
    told = [chunk["delta"].get("reasoning_content", "") for chunk in chunks]
    assert "".join(told) == "Hm, well."
    assert len([text for text in told if text]) > 3
    prompts = [engine.prompt(index) for index in range(3)]
    assert [prompt.partition("<user>")[0] for prompt in prompts] == [
        "<thinking>False</>",
        "<thinking>True</>",
        "",
    ]


async def test_a_model_that_does_not_think_cannot_be_asked_to() -> None:
    async with serving(FakeEngine("a")) as served, socket_to(served) as socket:
        (refused,) = await ask(socket, input="Hi", reasoning={"effort": "high"})
        body = await post(served, 400, reasoning_effort="high")
        await post(served, reasoning_effort="none")
    assert (refused["status"], refused["error"]["param"]) == (400, "reasoning.effort")
    assert (body["error"]["code"], body["error"]["param"]) == (
        "unsupported_value",
        "reasoning_effort",
    )


async def test_a_model_without_a_template_calls_nothing() -> None:
    engine = FakeEngine("a")
    engine.template = None  # type: ignore[assignment]
    async with serving(engine) as served:
        body = await post(served, 400, tools=CHAT)
    assert (body["error"]["code"], body["error"]["param"]) == ("unsupported_value", "tools")


async def test_what_must_be_called_is_a_constraint() -> None:
    engine = FakeEngine(CALL)
    named = {"type": "function", "function": {"name": "get_weather"}}
    form = {"type": "json_object"}
    async with serving(engine) as served:
        await post(served, tools=CHAT, tool_choice="required")
        await post(served, tools=CHAT, tool_choice=named)
        await post(served, tools=CHAT, response_format=form)
        await post(served, tools=CHAT)
        refused = await post(
            served, 400, tools=CHAT, response_format={"type": "regex", "regex": "a"}
        )
    required, one, either, free = (request.constraint for request in engine.requests)
    assert required is not None
    assert one is not None
    assert either is not None
    assert {each.kind for each in (required, one, either)} == {"calls"}
    assert required.param == "tools"
    assert "{0,15}" in required.text
    assert "{0,15}" not in one.text
    assert "answer" in either.text
    assert free is None
    assert engine.compiled == [required, one, either]
    assert refused["error"]["param"] == "response_format.regex"


async def test_a_model_that_has_not_learnt_calls_writes_them_by_their_form() -> None:
    engine = FakeEngine(CALL)
    engine.template = ChatTemplate(CHAT_TEMPLATE)
    async with serving(engine) as served:
        called = await post(served, tools=CHAT)
        await post(served, tools=CHAT, tool_choice="none")
    free, none = (request.constraint for request in engine.requests)
    assert free is not None
    assert (free.kind, free.param) == ("calls", "tools")
    assert free.text.startswith("start: TEXT? | said body")
    assert none is None
    assert engine.compiled == [free]
    assert called["choices"][0]["finish_reason"] == "tool_calls"


async def test_where_their_form_cannot_be_enforced_it_writes_them_freely() -> None:
    engine = FakeEngine(CALL)
    engine.template = ChatTemplate(CHAT_TEMPLATE)
    engine.refused = UserError(
        "uniqueItems", code="unsupported_value", param="tools[0].function.parameters"
    )
    async with serving(engine) as served:
        called = await post(served, tools=CHAT)
        refused = await post(served, 400, tools=CHAT, tool_choice="required")
    assert [request.constraint for request in engine.requests] == [None]
    assert called["choices"][0]["finish_reason"] == "tool_calls"
    assert refused["error"]["param"] == "tools[0].function.parameters"


@pytest.mark.parametrize(
    "fields", [{"min_tokens": 2}, {"ignore_eos": True}, {"stop_token_ids": [5]}]
)
async def test_what_goes_with_no_form_is_worth_more_than_that_of_free_calls(
    fields: dict[str, Any],
) -> None:
    engine = FakeEngine(CALL)
    engine.template = ChatTemplate(CHAT_TEMPLATE)
    async with serving(engine) as served:
        await post(served, tools=CHAT, **fields)
    assert [request.constraint for request in engine.requests] == [None]


async def test_a_model_that_thinks_but_has_not_learnt_calls_goes_on_thinking() -> None:
    engine = FakeEngine(CALL)
    engine.template = ChatTemplate(CHAT_TEMPLATE + "{# <think></think> #}")
    async with serving(engine) as served:
        await post(served, tools=CHAT)
    assert [request.constraint for request in engine.requests] == [None]


@pytest.fixture
async def served(tiny_package: Path) -> AsyncIterator[Served]:
    engine = await Engine.start(
        load_package(tiny_package), EngineOptions(slots=2, queue=4, context=256)
    )
    engine.template = ChatTemplate("{# tools #}{% for m in messages %}{{ m.content }}{% endfor %}")
    async with serving(engine) as running:
        yield running
    await engine.close()


async def test_a_random_model_makes_the_calls_that_it_must(served: Served) -> None:
    brief: Any = [
        {
            "type": "function",
            "function": {
                "name": "f",
                "parameters": {
                    "type": "object",
                    "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 999}},
                    "required": ["n"],
                    "additionalProperties": False,
                },
            },
        }
    ]
    fields = {"tools": brief, "tool_choice": "required", "parallel_tool_calls": False}
    messages = [{"role": "user", "content": "a"}]
    bodies = [
        await post(served, messages=messages, **fields, speculation=way)
        for way in ({}, {"off": True}, {"policy": "fixed", "length": 8})
    ]
    for body in bodies:
        ChatCompletion.model_validate(body, strict=True)
        (choice,) = body["choices"]
        (call,) = choice["message"]["tool_calls"]
        arguments = json.loads(call["function"]["arguments"])
        jsonschema.validate(arguments, brief[0]["function"]["parameters"])
        assert choice["finish_reason"] == "tool_calls"
    made = [body["choices"][0]["message"]["tool_calls"][0]["function"] for body in bodies]
    assert made[0] == made[1] == made[2]
    assert bodies[0]["choices"][0]["timings"]["by_drafter"]["grammar"]["draft_n_accepted"] > 0


COUNT: Any = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 999}},
    "required": ["n"],
    "additionalProperties": False,
}


def calling(parameters: Any) -> dict[str, Any]:
    function = {"name": "f", "parameters": parameters}
    return {
        "tools": [{"type": "function", "function": function}],
        "messages": [{"role": "user", "content": "a"}],
        "tool_choice": "required",
        "parallel_tool_calls": False,
    }


async def test_stops_do_not_act_within_a_call(served: Served) -> None:
    fields = calling(COUNT)
    plain = (await post(served, **fields))["choices"][0]
    stops = {"stop": ["}", '"n"', "\n", "<", ":", "0"], "stop_token_ids": list(range(3, 200))}
    for speculation in ({}, {"off": True}):
        body = await post(served, **fields, **stops, speculation=speculation)
        (choice,) = body["choices"]
        assert choice["finish_reason"] == "tool_calls"
        assert (choice["stop_reason"], plain["stop_reason"]) == (None, None)
        (call,), (expected,) = choice["message"]["tool_calls"], plain["message"]["tool_calls"]
        assert call["function"] == expected["function"]
    flat = [{"type": "function", "name": "f", "parameters": COUNT}]
    async with socket_to(served) as socket:
        events = await ask(socket, input="a", **{**fields, "tools": flat, **stops})
    response = events[-1]["response"]
    assert response["status"] == "completed"
    jsonschema.validate(json.loads(response["output"][0]["arguments"]), COUNT)


@pytest.mark.parametrize("parameters", [COUNT, {}], ids=["schema", "any"])
async def test_wherever_the_limit_falls_a_call_is_whole_or_said_to_be_cut(
    served: Served, parameters: Any
) -> None:
    seen = set()
    for limit in range(1, 90):
        body = await post(served, **calling(parameters), max_tokens=limit)
        (choice,) = body["choices"]
        message, reason = choice["message"], choice["finish_reason"]
        assert not message["content"]
        seen.add((reason, "tool_calls" in message))
        if reason == "tool_calls":
            (call,) = message["tool_calls"]
            jsonschema.validate(json.loads(call["function"]["arguments"]), parameters)
            break
        assert reason == "length"
    assert {("length", False), ("length", True)} <= seen
    if parameters is COUNT:
        assert ("tool_calls", True) in seen


async def test_a_schema_that_cannot_be_enforced_names_its_function(served: Served) -> None:
    fields = calling(COUNT)
    odd = {"type": "object", "properties": {"a": {"uniqueItems": True}}}
    fields["tools"].append({"type": "function", "function": {"name": "g", "parameters": odd}})
    error = (await post(served, 400, **fields))["error"]
    assert error["param"] == "tools[1].function.parameters"
    assert error["message"] == (
        'tools[1].function.parameters has "uniqueItems" at "properties.a",'
        " which cannot be enforced."
    )
    flat = [{"type": "function", **tool["function"]} for tool in fields["tools"]]
    async with socket_to(served) as socket:
        (event,) = await ask(socket, input="a", tools=flat, tool_choice="required")
    assert event["error"]["param"] == "tools[1].parameters"


def llama3_engine(answer: str) -> FakeEngine:
    engine = FakeEngine(answer)
    engine.template.source = "{{ tools }} <|python_tag|>"
    return engine


LLAMA = f'{{"name": "get_weather", "parameters": {ARGUMENTS}}}'
BROKEN = '<tool_call>{"name": "get_weather", "arguments": {"town": ]}</tool_call>'


@pytest.mark.parametrize(
    ("engine", "said", "length"),
    [
        (FakeEngine(f"{TEXT}\n{CALL}\nAnd so on."), "Let me see.", len(TEXT)),
        (FakeEngine(f"{CALL}{CALL}"), None, len(CALL)),
        (FakeEngine(f"{CALL} That is all."), None, len(CALL)),
        (llama3_engine(f"{LLAMA}; {LLAMA}"), None, len(LLAMA)),
    ],
    ids=["text around", "two", "text behind", "llama3"],
)
async def test_one_call_is_all_where_no_more_are_wanted(
    engine: FakeEngine, said: str | None, length: int
) -> None:
    wanted = {"tools": CHAT, "parallel_tool_calls": False}
    flat = {"input": "Hi", "tools": TOOLS, "parallel_tool_calls": False}
    async with serving(engine) as served, socket_to(served) as socket:
        whole = await post(served, **wanted, n=2)
        chunks = choice_chunks(await stream(served, **wanted))
        events = await ask(socket, **flat)
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{served.base}/responses", json=flat) as response,
        ):
            over_http = await response.json()
        more = await post(served, tools=CHAT)
    for choice in whole["choices"]:
        assert choice["finish_reason"] == "tool_calls"
        assert choice["stop_reason"] is None
        assert choice["message"]["content"] == said
        (call,) = choice["message"]["tool_calls"]
        assert call["function"] == {"name": "get_weather", "arguments": ARGUMENTS}
    assert whole["usage"]["completion_tokens"] == 2 * length, "nothing is made behind it"
    calls = [each for chunk in chunks for each in chunk["delta"].get("tool_calls", ())]
    assert {each["index"] for each in calls} == {0}
    assert "".join(each["function"]["arguments"] for each in calls) == ARGUMENTS
    assert "".join(chunk["delta"].get("content", "") for chunk in chunks) == (said or "")
    assert chunks[-1]["finish_reason"] == "tool_calls"
    for event in events:
        validate(event)
    for made in (events[-1]["response"], over_http):
        Response.model_validate(made, strict=True)
        assert made["status"] == "completed"
        assert made["parallel_tool_calls"] is False
        kinds = [item["type"] for item in made["output"]]
        assert kinds == [*(["message"] if said else []), "function_call"]
        assert made["output"][-1]["arguments"] == ARGUMENTS
        assert made["usage"]["output_tokens"] == length
    assert more["usage"]["completion_tokens"] == len(engine.answer)


async def test_a_call_that_breaks_off_is_the_only_one_too() -> None:
    wanted = {"tools": CHAT, "parallel_tool_calls": False}
    async with serving(FakeEngine(f"{BROKEN}\n{CALL}")) as served:
        (choice,) = (await post(served, **wanted))["choices"]
        (more,) = (await post(served, tools=CHAT))["choices"]
    assert choice["finish_reason"] == "stop"
    (call,) = choice["message"]["tool_calls"]
    assert call["function"]["arguments"] == '{"town": '
    assert len(more["message"]["tool_calls"]) == 2


async def test_a_conversation_goes_on_from_an_only_call() -> None:
    engine = FakeEngine(f"{CALL}\n{CALL}")
    flat = {"tools": TOOLS, "parallel_tool_calls": False}
    async with serving(engine) as served, socket_to(served) as socket:
        first = (await ask(socket, input="Hi", **flat))[-1]["response"]
        (call,) = first["output"]
        output = {"type": "function_call_output", "call_id": call["call_id"], "output": "wet"}
        await ask(socket, input=[output], previous_response_id=first["id"], **flat)
    assert engine.prompt().endswith(f"<assistant>{CALL}</><tool>get_weather\nwet</><assistant>")


def test_a_chunk_has_one_entry_for_each_call() -> None:
    parts = [
        CallBegun(0, "call_1", "weather"),
        CallDelta(0, '{"town'),
        CallDelta(0, '": "'),
        CallBegun(1, "call_2", "clock"),
        CallDelta(1, "{}"),
    ]
    assert chat_delta(parts) == {
        "tool_calls": [
            {
                "index": 0,
                "id": "call_1",
                "type": "function",
                "function": {"name": "weather", "arguments": '{"town": "'},
            },
            {
                "index": 1,
                "id": "call_2",
                "type": "function",
                "function": {"name": "clock", "arguments": "{}"},
            },
        ]
    }
    going_on = [CallDelta(1, "{"), CallDelta(1, "}")]
    assert chat_delta(going_on) == {"tool_calls": [{"index": 1, "function": {"arguments": "{}"}}]}
