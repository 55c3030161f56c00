"""`/v1/completions`, as the openai clients speak it and by their types."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types import Completion

from gateway.engine.requests import GenerationRequest, TokenLogprob
from gateway.http.completions.choices import opened
from gateway.http.completions.logprobs import Token, text_logprobs
from gateway.http.completions.routes import require_room
from gateway.http.completions.schema import TEXT_MAX_TOKENS, parse_text
from gateway.settings import Settings
from models.errors import UserError
from tests.chat_requests import choice_chunks, post, stream
from tests.fake_engine import (
    ENDLESS,
    FRESH_SEED,
    MODEL,
    CharacterTokenizer,
    FakeEngine,
    FakeGeneration,
)
from tests.http_serving import Served, serving, until

PATH = "completions"


def text_of(events: list[Any], index: int = 0) -> str:
    return "".join(choice["text"] for choice in choice_chunks(events, index))


def validate(document: dict[str, Any]) -> None:
    """Strictly, but for two nulls that the API sends and its types leave out: the end of a choice
    that goes on, and the scores of a prompt's first token."""
    for choice in document["choices"]:
        choice["finish_reason"] = choice["finish_reason"] or "stop"
        for name in ("token_logprobs", "top_logprobs") if choice["logprobs"] else ():
            entries = choice["logprobs"][name]
            choice["logprobs"][name] = [entry for entry in entries if entry is not None]
    Completion.model_validate(document, strict=True)


async def test_both_clients_get_a_whole_answer() -> None:
    def synchronous(base: str) -> Completion:
        with OpenAI(base_url=base, api_key="none") as client:
            return client.completions.create(model=MODEL, prompt=[65, 66], max_tokens=3)

    engine = FakeEngine("Hello, world")
    async with serving(engine) as served:
        async with AsyncOpenAI(base_url=served.base, api_key="none") as client:
            answer = await client.completions.create(model=MODEL, prompt="Say:")
        assert engine.prompt() == "Say:", "no template"
        short = await asyncio.to_thread(synchronous, served.base)
    assert engine.requests[-1].prompt == (65, 66)
    assert answer.choices[0].text == "Hello, world"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.choices[0].logprobs is None
    assert answer.id.startswith("cmpl-")
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (4, 12)
    assert answer.choices[0].seed == FRESH_SEED  # type: ignore[attr-defined]
    assert answer.choices[0].timings["rounds"] == 4  # type: ignore[attr-defined]
    assert (short.choices[0].text, short.choices[0].finish_reason) == ("Hel", "length")


async def test_both_clients_stream() -> None:
    def synchronous(base: str) -> str:
        with OpenAI(base_url=base, api_key="none") as client:
            chunks = client.completions.create(model=MODEL, prompt="a", stream=True)
            return "".join(chunk.choices[0].text for chunk in chunks)

    async with serving(FakeEngine("Hello, world")) as served:
        async with AsyncOpenAI(base_url=served.base, api_key="none") as client:
            chunks = await client.completions.create(
                model=MODEL, prompt="a", stream=True, stream_options={"include_usage": True}
            )
            read = [chunk async for chunk in chunks]
        assert "".join(chunk.choices[0].text for chunk in read[:-1]) == "Hello, world"
        assert read[-2].choices[0].finish_reason == "stop"
        assert read[-1].choices == []
        assert read[-1].usage is not None
        assert read[-1].usage.completion_tokens == 12
        assert await asyncio.to_thread(synchronous, served.base) == "Hello, world"


async def test_every_answer_and_chunk_is_of_the_published_types() -> None:
    async with serving(FakeEngine("Hello")) as served:
        for fields in ({}, {"logprobs": 2}, {"n": 2}, {"echo": True, "logprobs": 1}):
            asked = {"prompt": "ab", **fields}
            validate(await post(served, path=PATH, **asked))
            events = await stream(served, PATH, **asked, stream_options={"include_usage": True})
            assert events.pop() == "[DONE]"
            for event in events:
                validate(event)


async def test_several_prompts_are_numbered_prompt_by_prompt() -> None:
    engine = FakeEngine("xy", pace=0.005)
    async with serving(engine) as served:
        whole = await post(served, path=PATH, prompt=["a", "bcd"], n=2, seed=5, echo=True)
        events = await stream(
            served,
            PATH,
            prompt=[[97], [98, 99, 100]],
            n=2,
            seed=5,
            echo=True,
            stream_options={"include_usage": True},
        )
    texts = ["axy", "axy", "bcdxy", "bcdxy"]
    assert [choice["text"] for choice in whole["choices"]] == texts
    assert [choice["index"] for choice in whole["choices"]] == [0, 1, 2, 3]
    assert [choice["seed"] for choice in whole["choices"]] == [5, 6, 5, 6], "as if asked alone"
    assert [text_of(events, index) for index in range(4)] == texts
    assert [choice_chunks(events, index)[-1]["seed"] for index in range(4)] == [5, 6, 5, 6]
    for usage in (whole["usage"], events[-2]["usage"]):
        assert usage["prompt_tokens"] == 4, "each prompt once"
        assert usage["prompt_tokens_details"]["cached_tokens"] == 6
        assert usage["completion_tokens"] == 8
        assert usage["total_tokens"] == 12
    assert [request.prompt for request in engine.requests[:2]] == [(97,), (98, 99, 100)]


async def test_logprobs_are_four_arrays() -> None:
    async with serving(FakeEngine(["é", "b"])) as served:
        whole = await post(served, path=PATH, prompt="a", logprobs=2)
        none = await post(served, path=PATH, prompt="a", logprobs=0)
    assert whole["choices"][0]["logprobs"] == {
        "tokens": ["é", "b"],
        "token_logprobs": [-0.125, -0.25],
        "top_logprobs": [{"é": -0.125, "ê": -1.125}, {"b": -0.25, "c": -1.25}],
        "text_offset": [0, 1],
    }
    assert none["choices"][0]["logprobs"]["top_logprobs"] == [{"é": -0.125}, {"b": -0.25}]


def test_halves_of_characters_and_tokens_of_one_text_have_a_name_each() -> None:
    class Vocabulary(CharacterTokenizer):
        def token_bytes(self, token_id: int) -> bytes:
            return (b"\xe2\x80", b"\x80", b"a", b"a")[token_id]

    scored = TokenLogprob(2, -3.0, ((0, -1.0), (3, -2.0)))
    logprobs = text_logprobs(
        [Token(0, 0, None), Token(1, 0, None), Token(2, 1, scored)], Vocabulary()
    )
    assert logprobs["tokens"] == ["bytes:\\xe2\\x80", "bytes:\\x80", "a"]
    assert logprobs["top_logprobs"][2] == {"bytes:\\xe2\\x80": -1.0, "a": -2.0}
    assert logprobs["token_logprobs"] == [None, None, -3.0]


async def test_all_choices_are_told_to_end_before_any_is_waited_for() -> None:
    log: list[str] = []

    class Recorded(FakeGeneration):
        def cancel(self) -> None:
            log.append("cancel")

        async def __aexit__(self, *error: Any) -> None:
            log.append("left")
            await super().__aexit__(*error)

    class Engine(FakeEngine):
        def open_choices(self, request: GenerationRequest, n: int) -> list[FakeGeneration]:
            return [Recorded(self, request) for _ in range(n)]

    async with opened(Engine(), [GenerationRequest((1,)), GenerationRequest((2,))], 2) as choices:
        assert len(choices) == 4
    assert log == ["cancel"] * 4 + ["left"] * 4


async def test_an_echo_is_scored_and_counts_in_the_offsets() -> None:
    engine = FakeEngine("xy")
    async with serving(engine) as served:
        whole = await post(served, path=PATH, prompt="añ", logprobs=1, echo=True)
        events = await stream(served, PATH, prompt="añ", logprobs=1, echo=True, n=2)
    logprobs = whole["choices"][0]["logprobs"]
    assert whole["choices"][0]["text"] == "añxy"
    assert logprobs == {
        "tokens": ["a", "ñ", "x", "y"],
        "token_logprobs": [None, -0.25, -0.125, -0.25],
        "top_logprobs": [None, {"ñ": -0.25}, {"x": -0.125}, {"y": -0.25}],
        "text_offset": [0, 1, 2, 3],
    }
    for index in range(2):
        chunks = choice_chunks(events, index)
        assert chunks[0]["text"] == "añ"
        scored = [chunk["logprobs"] for chunk in chunks if chunk["logprobs"]]
        for name, entries in logprobs.items():
            assert [entry for part in scored for entry in part[name]] == entries
    assert engine.requests[-1].prompt_logprobs


async def test_without_logprobs_an_echo_is_not_scored() -> None:
    engine = FakeEngine("xy")
    async with serving(engine) as served:
        events = await stream(served, PATH, prompt="ab", echo=True)
        await post(served, path=PATH, prompt="ab", logprobs=1)
    assert [choice["text"] for choice in choice_chunks(events)] == ["ab", "x", "y", ""]
    assert choice_chunks(events)[0]["logprobs"] is None
    assert not any(request.prompt_logprobs for request in engine.requests)


async def test_a_prompt_can_be_scored_without_an_answer() -> None:
    async with serving(FakeEngine("xy")) as served:
        whole = await post(served, path=PATH, prompt="abc", logprobs=1, echo=True, max_tokens=0)
        events = await stream(served, PATH, prompt="abc", logprobs=1, echo=True, max_tokens=0)
    assert whole["choices"][0]["text"] == "abc"
    assert whole["choices"][0]["finish_reason"] == "length"
    assert whole["choices"][0]["logprobs"]["token_logprobs"] == [None, -0.25, -0.375]
    assert whole["usage"]["completion_tokens"] == 0
    assert text_of(events) == "abc"
    assert choice_chunks(events)[-1]["finish_reason"] == "length"


async def test_fields_and_defaults_reach_the_engine() -> None:
    engine = FakeEngine("x" * 40)
    async with serving(engine) as served:
        whole = await post(
            served, path=PATH, prompt="a", temperature=0.5, stop="Q", best_of=1, suffix=""
        )
        await post(served, path=PATH, prompt="a", n=2, best_of=2)
    assert whole["usage"]["completion_tokens"] == TEXT_MAX_TOKENS == 16
    assert engine.requests[0].max_tokens == 16
    assert engine.requests[0].sampling.temperature == 0.5
    assert engine.requests[0].stop == ("Q",)
    assert engine.requests[0].top_logprobs is None


BAD: list[tuple[dict[str, Any], str, str]] = [
    ({"prompt": None}, "missing_required_parameter", "prompt"),
    ({"prompt": []}, "missing_required_parameter", "prompt"),
    ({"prompt": ""}, "invalid_value", "prompt"),
    ({"prompt": ["a", ""]}, "invalid_value", "prompt[1]"),
    ({"prompt": [[]]}, "invalid_value", "prompt[0]"),
    ({"prompt": 7}, "invalid_type", "prompt"),
    ({"prompt": {"text": "a"}}, "invalid_type", "prompt"),
    ({"prompt": ["a", 7]}, "invalid_type", "prompt[1]"),
    ({"prompt": [7, "a"]}, "invalid_type", "prompt[1]"),
    ({"prompt": [True]}, "invalid_type", "prompt[0]"),
    ({"prompt": [[1, "a"]]}, "invalid_type", "prompt[0][1]"),
    ({"prompt": [1, -1]}, "unsupported_value", "prompt[1]"),
    ({"max_tokens": 0}, "invalid_value", "max_tokens"),
    ({"max_tokens": -1, "echo": True}, "invalid_value", "max_tokens"),
    ({"logprobs": 6}, "unsupported_value", "logprobs"),
    ({"logprobs": -1}, "unsupported_value", "logprobs"),
    ({"logprobs": True}, "invalid_type", "logprobs"),
    ({"echo": "yes"}, "invalid_type", "echo"),
    ({"n": 9}, "unsupported_value", "n"),
    ({"best_of": 3}, "unsupported_value", "best_of"),
    ({"n": 2, "best_of": 3}, "unsupported_value", "best_of"),
    ({"suffix": "end"}, "unsupported_value", "suffix"),
    ({"response_format": {"type": "xml"}}, "unsupported_value", "response_format.type"),
]


@pytest.mark.parametrize(("fields", "code", "param"), BAD, ids=lambda value: str(value)[:60])
def test_a_bad_value_names_its_field(fields: dict[str, Any], code: str, param: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_text({"prompt": "a", **fields}, Settings())
    assert (caught.value.code, caught.value.param) == (code, param)
    assert param in caught.value.message


@pytest.mark.parametrize(("prompts", "n", "param"), [(69, 1, "prompt"), (9, 8, "n")])
def test_more_answers_than_could_ever_wait_are_refused(prompts: int, n: int, param: str) -> None:
    settings = Settings(slots=4, queue=64)
    require_room(68, 1, settings)
    with pytest.raises(UserError, match="at most 68 at once") as caught:
        require_room(prompts, n, settings)
    assert (caught.value.code, caught.value.param) == ("unsupported_value", param)


@pytest.mark.parametrize(("prompts", "told"), [(1, "1 prompt, n 8"), (2, "2 prompts, n 8")])
def test_how_many_answers_were_asked_for_is_told(prompts: int, told: str) -> None:
    with pytest.raises(UserError) as caught:
        require_room(prompts, 8, Settings(slots=1, queue=2))
    assert caught.value.message == (
        f"{prompts * 8} answers are asked for ({told}); this gateway takes at most 3 at once,"
        " running and waiting."
    )


async def test_a_prompt_that_is_refused_takes_the_others_with_it() -> None:
    engine = FakeEngine(ENDLESS, pace=0.01)
    async with (
        serving(engine) as served,
        AsyncOpenAI(base_url=served.base, api_key="none", max_retries=0) as client,
    ):
        with pytest.raises(openai.BadRequestError) as caught:
            await client.completions.create(model=MODEL, prompt=["a", "b" * 1000], stream=True)
        assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "prompt")
        assert engine.most_running == 1, "the first had been entered"
        assert engine.running == 0


async def test_a_client_that_leaves_ends_all_prompts(served_slowly: Served) -> None:
    engine = served_slowly.gateway.engine
    assert isinstance(engine, FakeEngine)
    async with aiohttp.ClientSession() as session:
        body = {"prompt": ["a", "b"], "n": 2, "stream": True, "max_tokens": len(ENDLESS)}
        async with session.post(f"{served_slowly.base}/completions", json=body) as response:
            await response.content.readline()
            assert engine.running == 4
            response.connection.transport.abort()  # type: ignore[union-attr]
    said = engine.said
    await until(lambda: engine.running == 0)
    assert engine.said - said < 4 * 50, "none says more than it can in half a second"
    await until(lambda: served_slowly.gateway.running == 0)


@pytest.fixture
async def served_slowly() -> Any:
    async with serving(FakeEngine(ENDLESS, pace=0.01)) as served:
        yield served
