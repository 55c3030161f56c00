"""Reported elsewhere: what came behind a stop was kept, or sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.engine.requests import Speculation
from models.package import Package
from tests.chat_requests import choice_chunks, post, stream
from tests.engine_support import OFF, Reference, ScriptedDrafter, ask, build_engine, make_prompt
from tests.engine_support import running as engine_running
from tests.http_serving import ask as ask_socket
from tests.http_serving import serving, socket_to
from tests.test_answer import say

PROMPT = make_prompt(30)
EIGHT = Speculation(policy="fixed", length=8)
WIRE_EIGHT = {"policy": "fixed", "length": 8}
TEXT = "the one and the other and then END of the story, and the one again and the end."
COUNT = 60


@pytest.fixture(scope="module")
def answer(package: Package) -> list[int]:
    return Reference(package).answer(PROMPT, COUNT)


@pytest.fixture(scope="module")
def stop(answer: list[int]) -> int:
    """The place of a token that occurs nowhere before, inside a block of eight drafts."""
    return next(place for place in range(12, 17) if answer[place] not in answer[:place])


@pytest.mark.parametrize("length", [0, 1, 4, 8, 16])
@pytest.mark.parametrize("text", ["END", "d the other", " story, a", "e end."])
async def test_ids_and_logprobs_are_left_past_a_stop_string(
    package: Package, text: str, length: int
) -> None:
    """vllm#47616: text, ids, sources, log-probabilities and usage end at the same token.

    The stops lie inside a block, across its end, and across the tokens' own ends.
    """
    engine = build_engine(package)
    script = engine.tokenizer.encode(TEXT)
    say(engine, script)
    engine.drafter_of = lambda: ScriptedDrafter(script, package.manifest.target.vocab_size)
    try:
        said = await ask(
            engine,
            PROMPT,
            max_tokens=len(script),
            stop=("never", text),
            top_logprobs=1,
            speculation=Speculation(policy="fixed", length=length) if length else OFF,
        )
        pieces = [engine.tokenizer.decode([token]) for token in script]
    finally:
        await engine.close()
    kept = TEXT[: TEXT.index(text)]
    assert "".join(pieces) == TEXT
    begins = [len("".join(pieces[:index])) for index in range(len(pieces))]
    # A token of which the stop leaves a part stays.
    ids = [token for token, begin in zip(script, begins, strict=True) if begin < len(kept)]
    assert (said.text, said.ids) == (kept, ids)
    assert [entry.id for entry in said.logprobs] == ids
    assert [entry.top[0][0] for entry in said.logprobs] == ids
    assert len(said.sources) == len(ids)
    assert said.finished.usage.completion_tokens == len(ids)
    assert (said.finished.reason, said.finished.stop) == ("stop", text)
    if length:
        assert said.finished.timings.draft_n_accepted > len(ids) / 2


async def test_end_of_sequence_in_mid_block_is_accepted_and_the_output_goes_on(
    tiny_package: Path, package: Package, answer: list[int], stop: int
) -> None:
    """transformers#47912: every token behind it was drafted, and accepted."""
    async with engine_running(tiny_package) as engine:
        engine.eos_ids = frozenset({answer[stop]})
        engine.drafter_of = lambda: ScriptedDrafter(answer, package.manifest.target.vocab_size)
        said = await ask(
            engine, PROMPT, max_tokens=COUNT, ignore_eos=False, top_logprobs=0, speculation=EIGHT
        )
        last = engine.target.runs[-1][0]
        assert answer[stop] in last.tokens[1:-1], "tokens follow it in its block"
    assert (said.ids, said.finished.reason) == (answer[:stop], "stop")
    assert [entry.id for entry in said.logprobs] == answer[:stop]
    assert said.finished.usage.completion_tokens == stop


@pytest.mark.parametrize("kind", ["stop_token_ids", "end of sequence"])
async def test_tokens_after_the_stop_token_reach_the_client_of_responses(
    tiny_package: Path, package: Package, kind: str
) -> None:
    """koboldcpp#1276, openvino.genai#1951: no event has one of them, nor has the response."""
    size = package.manifest.target.vocab_size
    asked: dict[str, Any] = {"input": "the one and", "max_output_tokens": 40}
    asked |= {"include": ["speculation"], "top_logprobs": 1}
    async with (
        engine_running(tiny_package) as engine,
        serving(engine) as served,
        socket_to(served) as socket,
    ):
        asked["speculation"] = {"off": True}
        whole = ids_of(await ask_socket(socket, **asked, ignore_eos=True))
        place = next(place for place in range(12, 17) if whole[place] not in whole[:place])
        asked["speculation"] = WIRE_EIGHT
        engine.drafter_of = lambda: ScriptedDrafter(whole, size)
        if kind == "stop_token_ids":
            asked |= {"stop_token_ids": [whole[place]], "ignore_eos": True}
        else:
            engine.eos_ids = frozenset({whole[place]})
        events = await ask_socket(socket, **asked)
        texts = [engine.tokenizer.token_bytes(token) for token in whole[:place]]
    response = events[-1]["response"]
    assert ids_of(events) == whole[:place]
    assert response["status"] == "completed"
    assert response["usage"]["output_tokens"] == place
    part = response["output"][0]["content"][0]
    assert [bytes(entry["bytes"]) for entry in part["logprobs"]] == texts
    deltas = [event for event in events if event["type"] == "response.output_text.delta"]
    assert "".join(event["delta"] for event in deltas) == part["text"]
    assert part["text"] == b"".join(texts).decode("utf-8", "replace")
    assert response["timings"]["draft_n_accepted"] >= place - 3


def ids_of(events: list[dict[str, Any]]) -> list[int]:
    marks = [event["speculation"] for event in events if "speculation" in event]
    return [token for mark in marks for token in mark["ids"]]


async def test_tokens_after_the_stop_token_reach_the_client_of_completions(
    tiny_package: Path, package: Package, answer: list[int], stop: int
) -> None:
    """koboldcpp#1276, openvino.genai#1951: streamed and whole, text and log-probabilities."""
    asked: dict[str, Any] = {"path": "completions", "prompt": list(PROMPT), "max_tokens": COUNT}
    asked |= {"stop_token_ids": [answer[stop]], "logprobs": 1, "speculation": WIRE_EIGHT}
    async with engine_running(tiny_package) as engine, serving(engine) as served:
        engine.drafter_of = lambda: ScriptedDrafter(answer, package.manifest.target.vocab_size)
        chunks = choice_chunks(await stream(served, **asked, ignore_eos=True))
        whole = await post(served, **asked, ignore_eos=True)
        expected = engine.tokenizer.decode(answer[:stop], skip_special_tokens=True)
    scored = [score for chunk in chunks for score in (chunk["logprobs"] or NONE)["token_logprobs"]]
    assert "".join(chunk["text"] for chunk in chunks) == expected
    assert len(scored) == stop
    (choice,) = whole["choices"]
    assert choice["text"] == expected
    assert len(choice["logprobs"]["token_logprobs"]) == whole["usage"]["completion_tokens"] == stop
    for end in (chunks[-1], choice):
        assert (end["finish_reason"], end["stop_reason"]) == ("stop", answer[stop])


NONE: dict[str, list[float]] = {"token_logprobs": []}
