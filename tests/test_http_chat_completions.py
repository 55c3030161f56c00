"""`/v1/chat/completions`, as the openai clients speak it and by their types."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import openai
import orjson
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from gateway.engine.requests import Speculation
from tests.chat_requests import MESSAGES, PROMPT, choice_chunks, content_of, post, stream
from tests.fake_engine import ENDLESS, FRESH_SEED, MODEL, FakeEngine
from tests.http_serving import serving, until
from tests.patience import PATIENCE


async def test_both_clients_get_a_whole_answer() -> None:
    def synchronous(base: str) -> ChatCompletion:
        with OpenAI(base_url=base, api_key="none") as client:
            return client.chat.completions.create(model=MODEL, messages=MESSAGES, seed=5)

    engine = FakeEngine("Hello, world")
    async with serving(engine) as served:
        async with AsyncOpenAI(base_url=served.base, api_key="none") as client:
            answer = await client.chat.completions.create(model=MODEL, messages=MESSAGES)
        same = await asyncio.to_thread(synchronous, served.base)
    assert engine.prompt() == PROMPT
    assert answer.choices[0].message.content == "Hello, world"
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.model == MODEL
    assert answer.id.startswith("chatcmpl-")
    assert answer.id != same.id
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (len(PROMPT), 12)
    assert answer.usage.total_tokens == len(PROMPT) + 12
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens_details.cached_tokens == 3
    assert answer.choices[0].seed == FRESH_SEED  # type: ignore[attr-defined]
    assert answer.choices[0].timings["alpha"] == 0.75  # type: ignore[attr-defined]
    assert same.choices[0].seed == 5  # type: ignore[attr-defined]
    assert same.system_fingerprint == answer.system_fingerprint
    assert same.choices[0].message.content == "Hello, world"


async def test_every_answer_and_chunk_is_of_the_published_types() -> None:
    async with serving(FakeEngine("Hello")) as served:
        for fields in ({}, {"logprobs": True, "top_logprobs": 2}, {"n": 2}, {"max_tokens": 2}):
            ChatCompletion.model_validate(await post(served, **fields), strict=True)
            events = await stream(served, **fields, stream_options={"include_usage": True})
            assert events.pop() == "[DONE]"
            for event in events:
                ChatCompletionChunk.model_validate(event, strict=True)


async def test_a_stream_is_role_content_end_usage_and_done() -> None:
    async with serving(FakeEngine(["Hel", "lo"], pace=0.01)) as served:
        events = await stream(served, stream_options={"include_usage": True})
    assert events[-1] == "[DONE]"
    role, first, second, end, usage = events[:-1]
    assert role["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert first["choices"][0]["delta"] == {"content": "Hel"}
    assert second["choices"][0]["delta"] == {"content": "lo"}
    assert end["choices"][0]["delta"] == {}
    assert end["choices"][0]["finish_reason"] == "stop"
    assert end["choices"][0]["timings"]["draft_n_accepted"] == 6
    assert end["choices"][0]["seed"] == FRESH_SEED
    assert [event["choices"][0]["finish_reason"] for event in (role, first, second)] == [None] * 3
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == 2
    assert [event["usage"] for event in events[:-2]] == [None] * 4
    assert len({(event["id"], event["created"]) for event in events[:-1]}) == 1


async def test_without_include_usage_no_chunk_mentions_it() -> None:
    async with serving(FakeEngine("ab")) as served:
        events = await stream(served, stream_options={"include_usage": False})
    assert all("usage" not in event for event in events[:-1])
    assert events[-2]["choices"][0]["finish_reason"] == "stop"


async def test_both_clients_stream() -> None:
    def synchronous(base: str) -> str:
        with OpenAI(base_url=base, api_key="none") as client:
            chunks = client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True)
            return "".join(chunk.choices[0].delta.content or "" for chunk in chunks)

    async with serving(FakeEngine("Hello, world")) as served:
        async with (
            AsyncOpenAI(base_url=served.base, api_key="none") as client,
            client.chat.completions.stream(model=MODEL, messages=MESSAGES) as events,
        ):
            # The client's own accumulator puts the chunks together.
            whole = await events.get_final_completion()
        assert whole.choices[0].message.content == "Hello, world"
        assert whole.choices[0].finish_reason == "stop"
        assert await asyncio.to_thread(synchronous, served.base) == "Hello, world"


async def test_choices_are_interleaved_numbered_and_counted_once() -> None:
    engine = FakeEngine("abcdef", pace=0.005)
    async with serving(engine) as served:
        events = await stream(served, n=3, seed=40, stream_options={"include_usage": True})
        whole = await post(served, n=3, seed=40)
    indices = [choice["index"] for event in events[:-1] for choice in event["choices"]]
    assert indices[:3] == [0, 1, 2]
    assert sorted(indices[3:6]) == [0, 1, 2], "no choice waits for another"
    for index in range(3):
        assert content_of(events, index) == "abcdef"
        assert choice_chunks(events, index)[-1]["seed"] == 40 + index
    assert [choice["index"] for choice in whole["choices"]] == [0, 1, 2]
    assert [choice["seed"] for choice in whole["choices"]] == [40, 41, 42]
    for usage in (events[-2]["usage"], whole["usage"]):
        assert usage["prompt_tokens"] == len(PROMPT)
        assert usage["prompt_tokens_details"]["cached_tokens"] == 3
        assert usage["completion_tokens"] == 18
        assert usage["total_tokens"] == len(PROMPT) + 18
    assert engine.running == 0


async def test_logprobs_are_token_by_token_in_both_forms() -> None:
    async with serving(FakeEngine(["é", "b"])) as served:
        whole = await post(served, logprobs=True, top_logprobs=2)
        events = await stream(served, logprobs=True, top_logprobs=2)
        plain = await post(served, logprobs=True)
        without = await post(served)
    content = whole["choices"][0]["logprobs"]["content"]
    assert content[0] == {
        "token": "é",
        "logprob": -0.125,
        "bytes": [195, 169],
        "top_logprobs": [
            {"token": "é", "logprob": -0.125, "bytes": [195, 169]},
            {"token": "ê", "logprob": -1.125, "bytes": [195, 170]},
        ],
    }
    assert [entry["token"] for entry in content] == ["é", "b"]
    assert whole["choices"][0]["logprobs"]["refusal"] is None
    chunks = choice_chunks(events)
    assert [
        entry for chunk in chunks if chunk["logprobs"] for entry in chunk["logprobs"]["content"]
    ] == content
    for chunk in chunks:
        if chunk["logprobs"]:
            assert chunk["delta"]["content"] == chunk["logprobs"]["content"][0]["token"]
    assert [entry["top_logprobs"] for entry in plain["choices"][0]["logprobs"]["content"]] == [
        [],
        [],
    ]
    assert without["choices"][0]["logprobs"] is None


async def test_the_limit_and_the_stop_end_an_answer() -> None:
    engine = FakeEngine("one two three")
    async with serving(engine) as served:
        short = await post(served, max_tokens=3)
        newer = await post(served, max_tokens=3, max_completion_tokens=5)
        stopped = await post(served, stop=" t")
        await post(served)
    assert short["choices"][0]["message"]["content"] == "one"
    assert short["choices"][0]["finish_reason"] == "length"
    assert short["choices"][0]["stop_reason"] is None
    assert newer["choices"][0]["message"]["content"] == "one t"
    assert stopped["choices"][0]["message"]["content"] == "one"
    assert stopped["choices"][0]["finish_reason"] == "stop"
    assert stopped["choices"][0]["stop_reason"] == " t"
    assert engine.requests[-1].max_tokens is None, "what the context leaves"


async def test_all_fields_reach_the_engine() -> None:
    engine = FakeEngine()
    async with serving(engine) as served:
        await post(
            served,
            model=MODEL,
            temperature=0.7,
            top_p=0.9,
            top_k=40,
            min_p=0.05,
            presence_penalty=0.5,
            frequency_penalty=-0.5,
            repetition_penalty=1.1,
            logit_bias={"65": -100},
            seed=11,
            stop=["\n\n", "END"],
            stop_token_ids=[0],
            min_tokens=2,
            ignore_eos=True,
            logprobs=True,
            top_logprobs=3,
            speculation={"policy": "fixed", "length": 4},
            user="someone",
            metadata={"a": "b"},
            store=True,
            a_field_of_tomorrow={"x": 1},
        )
    request = engine.requests[-1]
    sampling = request.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p) == (
        0.7,
        0.9,
        40,
        0.05,
    )
    assert (sampling.presence_penalty, sampling.frequency_penalty) == (0.5, -0.5)
    assert (sampling.repetition_penalty, sampling.logit_bias) == (1.1, ((65, -100.0),))
    assert (sampling.seed, sampling.min_tokens) == (11, 2)
    assert (request.stop, request.stop_ids) == (("\n\n", "END"), (0,))
    assert request.ignore_eos
    assert request.top_logprobs == 3
    assert not request.prompt_logprobs
    assert request.speculation == Speculation(policy="fixed", length=4)


async def test_refusals_are_the_errors_that_the_client_knows() -> None:
    async with (
        serving(FakeEngine(capacity=0)) as served,
        AsyncOpenAI(base_url=served.base, api_key="none", max_retries=0) as client,
    ):
        create = client.chat.completions.create
        with pytest.raises(openai.NotFoundError) as missing:
            await create(model="other", messages=MESSAGES)
        assert missing.value.code == "model_not_found"
        with pytest.raises(openai.BadRequestError) as bad:
            await create(model=MODEL, messages=MESSAGES, n=9, stream=True)
        assert (bad.value.param, bad.value.code) == ("n", "unsupported_value")
        with pytest.raises(openai.RateLimitError) as full:
            await create(model=MODEL, messages=MESSAGES, stream=True)
        assert full.value.response.headers["Retry-After"] == "1"
        long: Any = [{"role": "user", "content": "x" * 1000}]
        with pytest.raises(openai.BadRequestError) as context:
            await create(model=MODEL, messages=long)
        assert (context.value.code, context.value.param) == ("context_length_exceeded", "messages")


async def test_without_a_model_the_gateway_is_loading() -> None:
    async with serving(None) as served:
        error = await post(served, status=503)
    assert error["error"]["code"] == "loading"


async def test_a_failure_in_mid_stream_is_an_event_and_no_done() -> None:
    engine = FakeEngine("abc", failure=RuntimeError("secret"))
    async with serving(engine) as served:
        events = await stream(served, n=2)
        assert events[-1]["error"]["code"] == "server_error"
        assert "secret" not in events[-1]["error"]["message"]
        assert "[DONE]" not in events
        async with AsyncOpenAI(base_url=served.base, api_key="none") as client:
            with pytest.raises(openai.APIError, match="its log says why"):
                async for _ in await client.chat.completions.create(
                    model=MODEL, messages=MESSAGES, stream=True
                ):
                    pass
        error = await post(served, status=500)
        assert error["error"]["code"] == "server_error"
    assert engine.running == 0


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_client_that_leaves_ends_all_its_choices(streamed: bool) -> None:
    engine = FakeEngine(ENDLESS, pace=0.01)
    async with serving(engine) as served:
        async with aiohttp.ClientSession() as session:
            body = {"messages": MESSAGES, "n": 4, "stream": streamed}
            call = session.post(f"{served.base}/chat/completions", json=body)
            posted = asyncio.create_task(call.__aenter__())
            await until(lambda: engine.running == 4)
            if streamed:
                (await posted).connection.transport.abort()  # type: ignore[union-attr]
            else:
                posted.cancel()
        said = engine.said
        await until(lambda: engine.running == 0)
        assert engine.said - said < 4 * 50, "none says more than it can in half a second"
        await until(lambda: served.gateway.running == 0)


async def test_a_client_that_does_not_read_is_dropped() -> None:
    engine = FakeEngine(["x" * 100_000] * 400, pace=0.0005)
    body = orjson.dumps({"messages": MESSAGES, "stream": True, "n": 2})
    async with serving(engine, send_deadline=0.2) as served:
        host, port = served.url.removeprefix("http://").split(":")
        _, writer = await asyncio.open_connection(host, int(port), limit=1024)
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body)}"
        writer.write(head.encode() + b"\r\n\r\n" + body)
        await until(lambda: engine.running == 2)
        await until(lambda: engine.running == 0)
        writer.transport.abort()
        assert (await post(served, max_tokens=1))["choices"][0]["finish_reason"] == "length"


async def test_a_drain_waits_for_choices_and_cuts_them_at_the_deadline() -> None:
    engine = FakeEngine("abcdef", held=3)
    async with serving(engine, drain_seconds=PATIENCE) as served:
        running = asyncio.create_task(stream(served, n=2))
        await until(lambda: engine.running == 2)
        closing = asyncio.create_task(served.runner.shutdown())
        await until(lambda: served.gateway.draining)
        engine.go_on()
        events = await running
        assert content_of(events, 1) == "abcdef"
        assert events[-1] == "[DONE]"
        await closing
    engine = FakeEngine(ENDLESS, pace=0.01)
    async with serving(engine, drain_seconds=0.1) as served:
        running = asyncio.create_task(stream(served))
        whole = asyncio.create_task(post(served, status=503))
        await until(lambda: engine.running == 2)
        await served.runner.shutdown()
        assert (await running)[-1]["error"]["code"] == "draining"
        assert (await whole)["error"]["code"] == "draining"
    assert engine.running == 0


async def test_more_choices_than_there_can_ever_be_room_for_are_refused_at_once() -> None:
    async with serving(FakeEngine("a"), slots=1, queue=2) as served:
        body = await post(served, 400, n=8)
    error = body["error"]
    assert (error["code"], error["param"]) == ("unsupported_value", "n")
    assert error["message"].startswith(
        "8 answers are asked for (1 prompt, n 8); this gateway takes"
    )
