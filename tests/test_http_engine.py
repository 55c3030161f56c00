"""The real engine behind the real wire, on the tiny package."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI, OpenAI

from gateway.engine.engine import Engine
from gateway.engine.options import EngineOptions
from gateway.http.responses.store import turn_key
from models.package import load_package
from models.tokenizer import StreamDecoder
from tests.http_serving import Served, ask, serving, socket_to, until
from tests.patience import PATIENCE

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
    assert sum(mark["verified"] for mark in marks) == response["timings"]["draft_n"] > 0
    assert "".join(text for mark in marks for text in mark["texts"]) == text_of(response)
    rounds = [told for mark in marks for told in mark["rounds"]]
    # A last round that gave no token is in the timings alone.
    assert [told["round"] for told in rounds] == list(range(1, len(rounds) + 1))
    assert response["timings"]["rounds"] - len(rounds) in (0, 1)
    token_rounds = [number for mark in marks for number in mark["token_rounds"]]
    assert token_rounds == sorted(token_rounds)
    assert len(token_rounds) == len([ms for mark in marks for ms in mark["token_ms"]]) == len(ids)
    timings = response["timings"]
    assert timings["tau"] == pytest.approx(
        1 + timings["draft_n_accepted"] / timings["rounds"], abs=5e-5
    )


async def test_killed_clients_free_their_slots_within_a_round(
    served: Served, engine: Engine
) -> None:
    for _ in range(30):
        async with socket_to(served) as socket:
            await socket.send_json({"type": "response.create", "input": PROMPT})
            await until(lambda: engine.status().free_slots < 2)
            socket._response.connection.transport.abort()  # type: ignore[union-attr]
        await until(lambda: engine.status().free_slots == 2)
    # Its slot is free a step before the connection has noticed.
    await until(lambda: served.gateway.running == 0)
    async with socket_to(served) as socket:
        response = (await ask(socket, input=PROMPT, max_output_tokens=5))[-1]["response"]
        assert response["usage"]["output_tokens"] <= 5


async def test_cancel_ends_with_what_there_is(served: Served, engine: Engine) -> None:
    async with socket_to(served) as socket:
        await socket.send_json({"type": "response.create", "input": PROMPT})
        created = await socket.receive_json(timeout=PATIENCE)
        await socket.send_json(
            {"type": "response.cancel", "response_id": created["response"]["id"]}
        )
        event = created
        while event["type"] not in ("response.incomplete", "response.completed"):
            event = await socket.receive_json(timeout=PATIENCE)
        assert event["response"]["status"] == "cancelled"
        assert event["response"]["timings"]["exact"] is True
        await until(lambda: engine.status().free_slots == 2)


async def test_a_prompt_beyond_the_context_is_refused_with_the_numbers(served: Served) -> None:
    async with socket_to(served) as socket:
        (error,) = await ask(socket, input=PROMPT * 50)
        assert (error["status"], error["error"]["code"]) == (400, "context_length_exceeded")
        assert "256" in error["error"]["message"]
        assert error["error"]["param"] == "input"
        assert (await ask(socket, input="the", max_output_tokens=3))[-1]["type"] != "error"


@pytest.mark.parametrize("drafter", ["eagle3", "cascade", "ngram+mtp", "nonsense"])
async def test_a_drafter_that_the_package_has_not_is_refused_by_name(
    served: Served, drafter: str
) -> None:
    async with socket_to(served) as socket:
        (refused,) = await ask(socket, input="Hi", speculation={"drafter": drafter})
    assert (refused["type"], refused["status"]) == ("error", 400)
    error = refused["error"]
    assert (error["code"], error["param"]) == ("unknown_drafter", "speculation.drafter")
    assert (
        error["message"]
        == f"unknown drafter {drafter!r}; this package has: auto, ngram, prediction, off."
    )


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
            event = await socket.receive_json(timeout=PATIENCE)
            if event["type"] in ("response.completed", "response.incomplete"):
                together[event["stream_id"]] = text_of(event["response"])
    assert [together["a"], together["b"]] == alone


SAMPLED: dict[str, Any] = {
    "input": PROMPT,
    "max_output_tokens": 40,
    "temperature": 1,
    "top_p": 0.95,
    "min_p": 0.001,
    "frequency_penalty": 0.2,
    "repetition_penalty": 1.1,
    "ignore_eos": True,
}


async def test_an_unseeded_answer_can_be_drawn_again_by_the_seed_it_reports(served: Served) -> None:
    async with socket_to(served) as socket:
        events = await ask(socket, **SAMPLED)
        first = events[-1]["response"]
        assert events[0]["response"]["seed"] == first["seed"]
        for speculation in ({"off": True}, {"policy": "fixed", "length": 5}, None):
            again = await ask(socket, **SAMPLED, seed=first["seed"], speculation=speculation)
            assert text_of(again[-1]["response"]) == text_of(first)
            assert again[-1]["response"]["seed"] == first["seed"]
        others = [(await ask(socket, **SAMPLED))[-1]["response"] for _ in range(3)]
    assert len({response["seed"] for response in [first, *others]}) == 4
    assert len({text_of(response) for response in [first, *others]}) > 1


async def test_lanes_with_one_seed_say_the_same(served: Served) -> None:
    """vllm#6038, TRT-LLM#17599: one stream of random numbers per request, over the wire."""
    async with socket_to(served) as socket:
        for lane in "ab":
            await socket.send_json(
                {"type": "response.create", "stream_id": lane, "seed": 11, **SAMPLED}
            )
        ended = []
        while len(ended) < 2:
            event = await socket.receive_json(timeout=PATIENCE)
            if event["type"] in ("response.completed", "response.incomplete"):
                ended.append(event["response"])
    assert text_of(ended[0]) == text_of(ended[1])


async def test_logprobs_are_those_of_the_text(served: Served, engine: Engine) -> None:
    async with socket_to(served) as socket:
        events = await ask(socket, **SAMPLED, top_logprobs=3, include=["speculation"])
        untold = await ask(socket, **SAMPLED, seed=events[-1]["response"]["seed"])
    response, deltas = events[-1]["response"], deltas_of(events)
    entries = response["output"][0]["content"][0]["logprobs"]
    ids = [token for event in deltas for token in event["speculation"]["ids"]]
    assert len(entries) == len(ids) == response["usage"]["output_tokens"] == 40
    assert [bytes(entry["bytes"]) for entry in entries] == [
        engine.tokenizer.token_bytes(token) for token in ids
    ]
    for event in deltas:
        assert len(event["logprobs"]) == len(event["speculation"]["ids"])
    told = [entry for event in deltas for entry in event["logprobs"]]
    assert [entry["logprob"] for entry in told] == [entry["logprob"] for entry in entries]
    for entry in entries:
        assert len(entry["top_logprobs"]) == 3
        values = [top["logprob"] for top in entry["top_logprobs"]]
        assert values == sorted(values, reverse=True)
        assert entry["logprob"] <= values[0] < 0
        assert sum(map(math.exp, values)) < 1
    # Looking at them changes nothing.
    assert text_of(untold[-1]["response"]) == text_of(response)


async def test_a_stop_string_ends_the_text(served: Served) -> None:
    async with socket_to(served) as socket:
        whole = text_of((await ask(socket, input=PROMPT, max_output_tokens=40))[-1]["response"])
        for begin in range(3, 12):
            stop = whole[begin : begin + 3]
            events = await ask(socket, input=PROMPT, max_output_tokens=40, stop=[stop, "\x00"])
            expected = whole[: whole.index(stop)]
            assert events[-1]["type"] == "response.completed"
            assert text_of(events[-1]["response"]) == expected
            assert "".join(event["delta"] for event in deltas_of(events)) == expected


async def test_what_follows_a_stop_continues_what_was_said(served: Served, engine: Engine) -> None:
    """The stop cuts a token: its rest was seen by the target and said to nobody."""
    words = map(engine.tokenizer.token_bytes, range(engine.package.manifest.target.vocab_size))
    token, word = next((i, raw.decode()) for i, raw in enumerate(words) if raw == b" the")
    async with socket_to(served) as socket:
        events = await ask(
            socket,
            input=PROMPT,
            max_output_tokens=9,
            min_tokens=2,
            logit_bias={str(token): 100},
            stop=word[2:],
            include=["speculation"],
        )
    response = events[-1]["response"]
    assert text_of(response) == word * 2 + word[:2]
    assert sum(len(event["speculation"]["ids"]) for event in deltas_of(events)) == 3
    turn = served.gateway.turns.get(turn_key(None, response["id"]))
    assert turn is not None
    assert turn.messages[-1].content == word * 2 + word[:2]
    assert turn.text.endswith("assistant\n" + word * 2)
    assert turn.ids[-3:] == (*engine.tokenizer.encode("\n"), token, token)


async def test_what_the_vocabulary_does_not_have_is_refused(served: Served, engine: Engine) -> None:
    most = engine.package.manifest.target.vocab_size
    async with socket_to(served) as socket:
        for fields, param in (
            ({"logit_bias": {str(most): 1}}, "logit_bias"),
            ({"stop_token_ids": [most]}, "stop_token_ids"),
            ({"min_tokens": 6, "max_output_tokens": 5}, "min_tokens"),
        ):
            (error,) = await ask(socket, input="the", **fields)
            assert error["error"]["code"] == "unsupported_value"
            assert error["error"]["param"] == param


async def test_a_banned_token_is_never_said_and_a_forced_one_always(
    served: Served, engine: Engine
) -> None:
    (token,) = engine.tokenizer.encode("e")
    async with socket_to(served) as socket:
        for temperature in (0, 1):
            events = await ask(
                socket,
                input=PROMPT,
                max_output_tokens=8,
                temperature=temperature,
                logit_bias={str(token): 100},
            )
            assert text_of(events[-1]["response"]) == "e" * 8
            ids = []
            for event in deltas_of(
                await ask(
                    socket,
                    input=PROMPT,
                    max_output_tokens=40,
                    temperature=temperature,
                    logit_bias={str(token): -100},
                    include=["speculation"],
                )
            ):
                ids += event["speculation"]["ids"]
            assert ids
            assert token not in ids


@pytest.mark.parametrize("temperature", [1e-6, 1e-30, 1e-300, 5e-324])
async def test_the_coldest_temperatures_are_greedy(served: Served, temperature: float) -> None:
    async with socket_to(served) as socket:
        greedy = await ask(socket, input=PROMPT, max_output_tokens=20)
        cold = await ask(socket, input=PROMPT, max_output_tokens=20, temperature=temperature)
        warped = await ask(
            socket, input=PROMPT, max_output_tokens=20, temperature=temperature, top_k=100, seed=1
        )
    assert text_of(cold[-1]["response"]) == text_of(greedy[-1]["response"])
    assert text_of(warped[-1]["response"]) == text_of(greedy[-1]["response"])
