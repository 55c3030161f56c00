"""openai-python over HTTP, blocking and async, unmodified: every answer is held to its types."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from tests.clients_support import FULL, KEY, SelectiveEngine
from tests.fake_engine import ENDLESS, MODEL, FakeEngine
from tests.http_serving import Served, serving, until
from tests.strict_types import (
    validate_completion,
    validate_event,
    validate_model,
    validate_response,
)

SAID = "Hello, world"
ASKED: Mapping[str, Mapping[str, Any]] = {
    "responses": {"input": "Hi"},
    "chat": {"messages": [{"role": "user", "content": "Hi"}]},
    "text": {"prompt": "Hi", "max_tokens": 900},
}
ENDPOINTS = list(ASKED)
# What is asked of each kind of client, with the same words: `create` returns or awaits.
Create = Callable[..., Any]


def creating(client: OpenAI | AsyncOpenAI, endpoint: str) -> Create:
    creates: dict[str, Create] = {
        "responses": client.responses.create,
        "chat": client.chat.completions.create,
        "text": client.completions.create,
    }
    return creates[endpoint]


async def call(served: Served, kind: str, work: Callable[[Create], Any], endpoint: str) -> Any:
    """`work` with the `create` of a client of this kind; blocking ones have a thread."""
    if kind == "async":
        async with AsyncOpenAI(base_url=served.base, api_key=KEY, max_retries=0) as client:
            return await _settled(work(creating(client, endpoint)))

    def blocking() -> Any:
        with OpenAI(base_url=served.base, api_key=KEY, max_retries=0) as client:
            found = work(creating(client, endpoint))
            return found if isinstance(found, openai.BaseModel) else list(found)

    return await asyncio.to_thread(blocking)


async def _settled(found: Any) -> Any:
    """An answer, or all events of a stream."""
    found = await found
    return found if isinstance(found, openai.BaseModel) else [event async for event in found]


async def ask(served: Served, kind: str, endpoint: str, **fields: Any) -> Any:
    asked = {"model": MODEL, **ASKED[endpoint], **fields}
    return await call(served, kind, lambda create: create(**asked), endpoint)


def held_to_types(endpoint: str, found: Any) -> None:
    if isinstance(found, list):
        for each in found:
            if endpoint == "responses":
                validate_event(each.to_dict(), socket=False)
            else:
                validate_completion(each.to_dict())
    elif endpoint == "responses":
        validate_response(found.to_dict())
    else:
        validate_completion(found.to_dict())


def text_of(endpoint: str, found: Any) -> str:
    if endpoint == "responses":
        if not isinstance(found, list):
            return str(found.output_text)
        return "".join(e.delta for e in found if e.type == "response.output_text.delta")
    if not isinstance(found, list):
        choice = found.choices[0]
        return str(choice.message.content if endpoint == "chat" else choice.text)
    choices = [choice for chunk in found for choice in chunk.choices]
    if endpoint == "chat":
        return "".join(choice.delta.content or "" for choice in choices)
    return "".join(choice.text for choice in choices)


BOTH = pytest.mark.parametrize("kind", ["sync", "async"])
EVERY = pytest.mark.parametrize("endpoint", ENDPOINTS)


@BOTH
@EVERY
@pytest.mark.parametrize("stream", [False, True])
async def test_text(kind: str, endpoint: str, stream: bool) -> None:
    async with serving(FakeEngine(SAID)) as served:
        found = await ask(served, kind, endpoint, stream=stream)
    assert isinstance(found, list) == stream
    held_to_types(endpoint, found)
    assert text_of(endpoint, found) == SAID


@BOTH
async def test_turns_by_the_id_of_the_last(kind: str) -> None:
    engine = FakeEngine(SAID)
    async with serving(engine) as served:
        first = await ask(served, kind, "responses", instructions="Be brief.")
        second = await ask(served, kind, "responses", input="And?", previous_response_id=first.id)
    held_to_types("responses", second)
    assert second.previous_response_id == first.id
    assert engine.prompt() == f"<user>Hi</><assistant>{SAID}</><user>And?</><assistant>"
    assert engine.prompt(0) == "<system>Be brief.</><user>Hi</><assistant>"


@BOTH
async def test_turns_by_what_was_said(kind: str) -> None:
    """An answer's own items are the input of the next turn, as the client holds them."""
    engine = FakeEngine(SAID)
    async with serving(engine) as served:
        first = await ask(served, kind, "responses", top_logprobs=2)
        items = [{"role": "user", "content": "Hi"}, *first.output, {"role": "user", "content": "?"}]
        await ask(served, kind, "responses", input=items)
        chat = await ask(served, kind, "chat")
        said = [
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
            chat.choices[0].message,
            {"role": "user", "content": "?"},
        ]
        await ask(served, kind, "chat", messages=said)
    turns = f"<user>Hi</><assistant>{SAID}</><user>?</><assistant>"
    assert engine.prompt(1) == turns
    assert engine.prompt(3) == "<system>Be brief.</>" + turns


@BOTH
@pytest.mark.parametrize("stream", [False, True])
async def test_logprobs(kind: str, stream: bool) -> None:
    async with serving(FakeEngine("abc")) as served:
        include = ["message.output_text.logprobs"]
        responses = await ask(
            served, kind, "responses", include=include, top_logprobs=2, stream=stream
        )
        chat = await ask(served, kind, "chat", logprobs=True, top_logprobs=2, stream=stream)
        text = await ask(served, kind, "text", logprobs=2, stream=stream)
    for endpoint, found in (("responses", responses), ("chat", chat), ("text", text)):
        held_to_types(endpoint, found)
    expected = [-1 / 8, -2 / 8, -3 / 8]
    last = responses[-1].response if stream else responses
    entries = last.output[0].content[0].logprobs
    assert [entry.logprob for entry in entries] == expected
    assert [[top.token for top in entry.top_logprobs] for entry in entries] == [
        ["a", "b"],
        ["b", "c"],
        ["c", "d"],
    ]
    choices = [c for each in (chat if stream else [chat]) for c in each.choices]
    told = [entry for c in choices if c.logprobs for entry in c.logprobs.content]
    assert [entry.logprob for entry in told] == expected
    assert [bytes(entry.bytes) for entry in told] == [b"a", b"b", b"c"]
    choices = [c for each in (text if stream else [text]) for c in each.choices]
    assert [p for c in choices if c.logprobs for p in c.logprobs.token_logprobs] == expected


@BOTH
@EVERY
async def test_stop(kind: str, endpoint: str) -> None:
    async with serving(FakeEngine("one END two")) as served:
        stop: dict[str, Any] = {"stop": ["END"]}
        asked = {"extra_body": stop} if endpoint == "responses" else stop
        found = await ask(served, kind, endpoint, **asked)
    held_to_types(endpoint, found)
    assert text_of(endpoint, found) == "one "
    ended = found if endpoint == "responses" else found.choices[0]
    assert ended.stop_reason == "END"
    if endpoint != "responses":
        assert ended.finish_reason == "stop"


@BOTH
@pytest.mark.parametrize("endpoint", ["chat", "text"])
@pytest.mark.parametrize("stream", [False, True])
async def test_n(kind: str, endpoint: str, stream: bool) -> None:
    options = {"stream_options": {"include_usage": True}} if stream else {}
    async with serving(FakeEngine("abc")) as served:
        found = await ask(served, kind, endpoint, n=3, seed=5, stream=stream, **options)
    held_to_types(endpoint, found)
    chunks = found if stream else [found]
    choices = [choice for chunk in chunks for choice in chunk.choices]
    ended = {choice.index: choice for choice in choices if choice.finish_reason}
    assert sorted(ended) == [0, 1, 2]
    assert [ended[index].seed for index in range(3)] == [5, 6, 7]
    assert chunks[-1].usage.completion_tokens == 9
    assert (chunks[-1].choices == []) == stream


@BOTH
@EVERY
async def test_a_limit_ends_it(kind: str, endpoint: str) -> None:
    limit = {"max_output_tokens" if endpoint == "responses" else "max_tokens": 5}
    async with serving(FakeEngine(SAID)) as served:
        found = await ask(served, kind, endpoint, **limit)
    held_to_types(endpoint, found)
    assert text_of(endpoint, found) == "Hello"
    if endpoint == "responses":
        assert (found.status, found.incomplete_details.reason) == (
            "incomplete",
            "max_output_tokens",
        )
    else:
        assert found.choices[0].finish_reason == "length"


ERRORS: list[tuple[dict[str, Any], type[openai.APIStatusError], str, str | None]] = [
    ({"temperature": 2.5}, openai.BadRequestError, "unsupported_value", "temperature"),
    ({"extra_body": {"seed": "x"}}, openai.BadRequestError, "invalid_type", "seed"),
    ({"model": "gpt-4"}, openai.NotFoundError, "model_not_found", "model"),
    ({"said": FULL}, openai.RateLimitError, "queue_full", None),
    ({"said": "long " * 300}, openai.BadRequestError, "context_length_exceeded", "{said}"),
]


@BOTH
@EVERY
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("fields", "expected", "code", "param"), ERRORS)
async def test_errors_are_the_classes_of_the_client(
    kind: str,
    endpoint: str,
    stream: bool,
    fields: dict[str, Any],
    expected: type[openai.APIStatusError],
    code: str,
    param: str | None,
) -> None:
    fields = dict(fields)
    said_in = next(iter(ASKED[endpoint]))
    if "said" in fields:
        said = fields.pop("said")
        fields[said_in] = [{"role": "user", "content": said}] if endpoint == "chat" else said
    async with serving(SelectiveEngine(SAID)) as served:
        with pytest.raises(expected) as refused:
            await ask(served, kind, endpoint, stream=stream, **fields)
    assert (refused.value.code, refused.value.param) == (
        code,
        said_in if param == "{said}" else param,
    )
    assert type(refused.value) is expected


@BOTH
async def test_a_wrong_key_and_a_lost_turn(kind: str) -> None:
    async with serving(FakeEngine(SAID), api_keys=("another",)) as served:
        with pytest.raises(openai.AuthenticationError) as refused:
            await ask(served, kind, "chat")
        assert refused.value.code == "invalid_api_key"
    async with serving(FakeEngine(SAID), api_keys=(KEY,)) as served:
        assert text_of("chat", await ask(served, kind, "chat")) == SAID
        with pytest.raises(openai.NotFoundError) as lost:
            await ask(served, kind, "responses", previous_response_id="resp_none")
        assert lost.value.code == "previous_response_not_found"


async def test_models() -> None:
    async with (
        serving(FakeEngine()) as served,
        AsyncOpenAI(base_url=served.base, api_key=KEY, max_retries=0) as client,
    ):
        async for model in await client.models.list():
            validate_model(model.to_dict())
        validate_model((await client.models.retrieve(MODEL)).to_dict())


async def test_what_fails_in_mid_stream_is_an_error() -> None:
    engine = FakeEngine(SAID, failure=RuntimeError("the device is gone"))
    async with serving(engine) as served:
        for endpoint in ("chat", "text"):
            with pytest.raises(openai.APIError, match="its log says why") as failed:
                await ask(served, "async", endpoint, stream=True)
            assert failed.value.code == "server_error"
            with pytest.raises(openai.InternalServerError):
                await ask(served, "async", endpoint)
        events = await ask(served, "async", "responses", stream=True)
        held_to_types("responses", events)
        assert events[-1].type == "response.failed"
        with pytest.raises(openai.InternalServerError):
            await ask(served, "async", "responses")


async def test_the_client_comes_again_when_it_was_told_to() -> None:
    engine = SelectiveEngine(SAID)
    async with (
        serving(engine) as served,
        AsyncOpenAI(base_url=served.base, api_key=KEY, max_retries=1) as client,
    ):
        engine.refusals = 1
        again = await client.responses.create(model=MODEL, input="Hi")
    assert again.output_text == SAID
    assert engine.refusals == 0


@EVERY
async def test_closing_a_stream_cancels(endpoint: str) -> None:
    engine = FakeEngine(ENDLESS, pace=0.01)
    async with serving(engine) as served:
        async with AsyncOpenAI(base_url=served.base, api_key=KEY) as client:
            create = creating(client, endpoint)
            stream = await create(model=MODEL, stream=True, **ASKED[endpoint])
            await anext(aiter(stream))
            assert engine.running == 1
            await stream.close()
            await until(lambda: engine.running == 0)

        def leave() -> None:
            with OpenAI(base_url=served.base, api_key=KEY) as client:
                create = creating(client, endpoint)
                with create(model=MODEL, stream=True, **ASKED[endpoint]) as stream:
                    next(iter(stream))
                    assert engine.running == 1

        await asyncio.to_thread(leave)
        await until(lambda: engine.running == 0)
        await until(lambda: served.gateway.running == 0)
