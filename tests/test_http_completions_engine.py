"""Chat completions and completions on the real engine, on the tiny package."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.chat import ChatCompletion

from gateway.engine.engine import Engine
from gateway.engine.options import EngineOptions
from gateway.engine.requests import Speculation
from models.package import load_package
from models.sampling.noise import choice_seed
from tests.chat_requests import choice_chunks, content_of, post, stream
from tests.engine_support import ask
from tests.http_serving import Served, serving, until

PROMPT = "the other and the one and the other and the one and the"
MESSAGES: list[Any] = [{"role": "user", "content": PROMPT}]
LENGTH = 40
SLOTS = 3
FIXED = {"policy": "fixed", "length": 3}


@pytest.fixture
async def engine(tiny_package: Path) -> AsyncIterator[Engine]:
    started = await Engine.start(load_package(tiny_package), EngineOptions(slots=SLOTS, queue=8))
    yield started
    await started.close()


@pytest.fixture
async def served(engine: Engine) -> AsyncIterator[Served]:
    async with serving(engine) as running:
        yield running


def all_logprobs(events: list[Any], index: int = 0) -> list[Any]:
    parts = [choice["logprobs"] for choice in choice_chunks(events, index) if choice["logprobs"]]
    return [entry for part in parts for entry in part["content"]]


def scored_text(entries: list[Any]) -> str:
    return b"".join(bytes(entry["bytes"]) for entry in entries).decode("utf-8", "replace")


async def test_both_clients_both_ways_say_what_the_engine_says(
    served: Served, engine: Engine
) -> None:
    def synchronous() -> str:
        with OpenAI(base_url=served.base, api_key="none") as client:
            chunks = client.completions.create(
                model="tiny",
                prompt=PROMPT,
                max_tokens=LENGTH,
                stream=True,
                extra_body={"speculation": FIXED, "ignore_eos": True},
            )
            return "".join(chunk.choices[0].text for chunk in chunks)

    ids = engine.tokenizer.encode(PROMPT)
    off = Speculation(drafter="off", policy="off")
    expected = (await ask(engine, ids, max_tokens=LENGTH, speculation=off)).text
    async with AsyncOpenAI(base_url=served.base, api_key="none") as client:
        answer = await client.completions.create(
            model="tiny", prompt=ids, max_tokens=LENGTH, extra_body={"ignore_eos": True}
        )
    assert answer.choices[0].text == expected
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (len(ids), LENGTH)
    assert await asyncio.to_thread(synchronous) == expected


async def test_logprobs_line_up_with_the_text_and_with_speculation(served: Served) -> None:
    """Random weights say many halves of characters: tokens come before their text is whole."""
    fields: dict[str, Any] = {"messages": MESSAGES, "max_tokens": LENGTH, "ignore_eos": True}
    fields |= {"logprobs": True, "top_logprobs": 5}
    events = await stream(served, **fields, speculation=FIXED)
    whole = await post(served, **fields, speculation={"off": True})
    ChatCompletion.model_validate(whole, strict=True)
    entries = whole["choices"][0]["logprobs"]["content"]
    text = whole["choices"][0]["message"]["content"]
    assert len(entries) == LENGTH
    # The limit may leave out the beginning of a character, which the scores still have.
    assert scored_text(entries).removesuffix("\ufffd") in (text, text.removesuffix("\ufffd"))
    assert content_of(events) == text
    streamed = all_logprobs(events)
    assert [entry["token"] for entry in streamed] == [entry["token"] for entry in entries]
    for mine, other in zip(streamed, entries, strict=True):
        assert mine["logprob"] == pytest.approx(other["logprob"], abs=1e-4)
    for entry in entries:
        assert len(entry["top_logprobs"]) == 5
        # Greedy: the token is the first of the most likely ones.
        assert entry["top_logprobs"][0]["bytes"] == entry["bytes"]
        assert entry["top_logprobs"][0]["logprob"] == entry["logprob"]


async def test_choices_differ_and_each_is_replayed_by_its_seed(
    served: Served, engine: Engine
) -> None:
    fields: dict[str, Any] = {"messages": MESSAGES, "max_tokens": LENGTH, "temperature": 1.0}
    events = await stream(served, **fields, n=5, stream_options={"include_usage": True})
    ends = [choice_chunks(events, index)[-1] for index in range(5)]
    texts = [content_of(events, index) for index in range(5)]
    assert len(set(texts)) == 5
    assert [end["seed"] for end in ends] == [choice_seed(ends[0]["seed"], i) for i in range(5)]
    for text, end in zip(texts, ends, strict=True):
        again = await post(served, **fields, seed=end["seed"], speculation=FIXED)
        assert again["choices"][0]["message"]["content"] == text
        assert again["choices"][0]["seed"] == end["seed"]
    prompt_tokens = again["usage"]["prompt_tokens"]
    assert events[-2]["usage"]["prompt_tokens"] == prompt_tokens
    assert engine.status().free_slots == SLOTS


async def test_an_echo_scores_the_prompt_as_the_answer_was_scored(served: Served) -> None:
    """What was generated, given as a prompt, has the scores that it was generated with."""
    answer = await post(
        served,
        path="completions",
        prompt=PROMPT,
        max_tokens=12,
        logprobs=3,
        ignore_eos=True,
        echo=True,
    )
    first = answer["choices"][0]
    tokens = first["logprobs"]["tokens"]
    count = answer["usage"]["prompt_tokens"]
    assert answer["usage"]["completion_tokens"] == 12
    assert len(tokens) == count + 12
    assert first["text"].startswith(PROMPT)
    assert "".join(tokens[:count]) == PROMPT
    offsets = first["logprobs"]["text_offset"]
    assert offsets[0] == 0
    assert offsets[count] == len(PROMPT)
    for token, offset in zip(tokens[:count], offsets, strict=False):
        assert first["text"][offset : offset + len(token)] == token
    engine = served.gateway.engine
    assert isinstance(engine, Engine)
    ids = engine.tokenizer.encode(PROMPT)
    answered = (await ask(engine, ids, max_tokens=12)).ids
    for n in (1, 2):
        scored = await post(
            served,
            path="completions",
            prompt=[[*ids, *answered]],
            max_tokens=0,
            logprobs=3,
            echo=True,
            n=n,
        )
        assert scored["usage"]["completion_tokens"] == 0
        for choice in scored["choices"]:
            again = choice["logprobs"]
            assert again["tokens"] == tokens
            assert again["token_logprobs"][0] is None
            assert again["token_logprobs"][1:] == pytest.approx(
                first["logprobs"]["token_logprobs"][1:], abs=1e-4
            )
            # The token itself and the three most likely, of which it may be one.
            assert all(3 <= len(top) <= 4 for top in again["top_logprobs"][1:])


async def test_a_stop_string_ends_text_and_scores_together(served: Served) -> None:
    fields: dict[str, Any] = {"messages": MESSAGES, "max_tokens": LENGTH, "ignore_eos": True}
    whole = (await post(served, **fields))["choices"][0]["message"]["content"]
    stop = next(whole[i : i + 3] for i in range(8, LENGTH) if "\ufffd" not in whole[i : i + 3])
    events = await stream(served, **fields, stop=stop, logprobs=True)
    end = choice_chunks(events)[-1]
    assert content_of(events) == whole[: whole.index(stop)]
    assert (end["finish_reason"], end["stop_reason"]) == ("stop", stop)
    assert scored_text(all_logprobs(events)).startswith(content_of(events)[:-1])
    assert stop not in scored_text(all_logprobs(events))


@pytest.mark.parametrize("streamed", [False, True])
async def test_clients_that_leave_free_their_slots(
    served: Served, engine: Engine, streamed: bool
) -> None:
    body = {"messages": MESSAGES, "n": 5, "stream": streamed, "ignore_eos": True}
    for _ in range(5):
        async with aiohttp.ClientSession() as session:
            call = session.post(f"{served.base}/chat/completions", json=body)
            posted = asyncio.create_task(call.__aenter__())
            await until(lambda: engine.status().free_slots == 0)
            if streamed:
                (await posted).connection.transport.abort()  # type: ignore[union-attr]
            else:
                posted.cancel()
        await until(lambda: engine.status().free_slots == SLOTS)
        assert engine.status().waiting == 0
    await until(lambda: served.gateway.running == 0)
    assert (await post(served, max_tokens=3))["usage"]["completion_tokens"] <= 3


async def test_ids_beyond_the_vocabulary_are_refused_by_name(served: Served) -> None:
    error = await post(served, 400, path="completions", prompt=[1, 1 << 20])
    assert (error["error"]["code"], error["error"]["param"]) == ("invalid_prompt", "prompt")


async def test_a_full_queue_refuses_all_choices_or_none(served: Served, engine: Engine) -> None:
    long = {"messages": MESSAGES, "n": 8, "ignore_eos": True}
    async with aiohttp.ClientSession() as session:
        call = session.post(f"{served.base}/chat/completions", json=long)
        posted = asyncio.create_task(call.__aenter__())
        await until(lambda: engine.status().free_slots == 0)
        error = await post(served, 429, n=8)
        assert error["error"]["code"] == "queue_full"
        posted.cancel()
    await until(lambda: engine.status().free_slots == SLOTS)
