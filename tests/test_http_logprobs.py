"""Log-probabilities of an answer's tokens in the events and in the finished part."""

from __future__ import annotations

import math
from typing import Any

import pytest
from openai import AsyncOpenAI
from openai.types.responses import Response

from gateway.engine.requests import Delta, GenerationRequest, TokenLogprob
from gateway.http.logprobs import described
from gateway.http.responses.events import ResponseEvents
from gateway.http.responses.schema import parse_create
from gateway.settings import Settings
from tests.fake_engine import MODEL, CharacterTokenizer, FakeEngine
from tests.http_serving import ask, serving, socket_to
from tests.test_http_clients import validate

INCLUDE = ["message.output_text.logprobs"]
TEXT = "a\u00e9\u2603z"
BYTES = [[97], [195, 169], [226, 152, 131], [122]]


class ByteTokenizer(CharacterTokenizer):
    """Ids are bytes."""

    def token_bytes(self, token_id: int) -> bytes:
        return bytes([token_id])


def of_kind(events: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [event for event in events if event["type"] == kind]


async def answered(text: str | list[str] = TEXT, **fields: Any) -> list[dict[str, Any]]:
    async with serving(FakeEngine(text)) as served, socket_to(served) as socket:
        events = await ask(socket, input="Hi", **fields)
    for event in events:
        validate(event)
    Response.model_validate(events[-1]["response"], strict=True)
    return events


def part_of(events: list[dict[str, Any]]) -> dict[str, Any]:
    (item,) = events[-1]["response"]["output"]
    (part,) = item["content"]
    return dict(part)


@pytest.mark.parametrize(
    ("fields", "top"),
    [
        ({"include": INCLUDE}, 0),
        ({"include": INCLUDE, "top_logprobs": 2}, 2),
        ({"top_logprobs": 3}, 3),
    ],
)
async def test_each_token_has_its_logprob(fields: dict[str, Any], top: int) -> None:
    events = await answered(**fields)
    deltas = of_kind(events, "response.output_text.delta")
    told = [entry for event in deltas for entry in event["logprobs"]]
    assert [entry["token"] for entry in told] == list(TEXT)
    assert [entry["logprob"] for entry in told] == [-0.125, -0.25, -0.375, -0.5]
    for event in deltas:
        assert "".join(entry["token"] for entry in event["logprobs"]) == event["delta"]
    assert told[0] == {
        "token": "a",
        "logprob": -0.125,
        "top_logprobs": [{"token": "abc"[n], "logprob": -0.125 - n} for n in range(top)],
    }
    (done,) = of_kind(events, "response.output_text.done")
    assert done["logprobs"] == told
    part = part_of(events)
    assert part == of_kind(events, "response.content_part.done")[0]["part"]
    assert [entry["bytes"] for entry in part["logprobs"]] == BYTES
    assert part["logprobs"][0] == {
        "token": "a",
        "bytes": [97],
        "logprob": -0.125,
        "top_logprobs": [
            {"token": "abc"[n], "bytes": [97 + n], "logprob": -0.125 - n} for n in range(top)
        ],
    }
    assert events[-1]["response"]["top_logprobs"] == top


@pytest.mark.parametrize("fields", [{}, {"top_logprobs": 0}, {"include": ["speculation"]}])
async def test_who_does_not_ask_is_told_none(fields: dict[str, Any]) -> None:
    events = await answered(**fields)
    for event in of_kind(events, "response.output_text.delta"):
        assert event["logprobs"] == []
    assert of_kind(events, "response.output_text.done")[0]["logprobs"] == []
    assert part_of(events)["logprobs"] == []


async def test_tokens_that_arrive_together_are_told_together() -> None:
    events = await answered(["ab", "c"], include=INCLUDE)
    deltas = of_kind(events, "response.output_text.delta")
    assert [[entry["token"] for entry in event["logprobs"]] for event in deltas] == [
        ["a", "b"],
        ["c"],
    ]


async def test_a_cut_or_failed_answer_keeps_those_it_has_told() -> None:
    cut = await answered(include=INCLUDE, max_output_tokens=2)
    assert [entry["token"] for entry in part_of(cut)["logprobs"]] == ["a", "\u00e9"]
    engine = FakeEngine(TEXT, failure=RuntimeError("gone"))
    async with serving(engine) as served, socket_to(served) as socket:
        failed = await ask(socket, input="Hi", include=INCLUDE)
    assert failed[-1]["type"] == "response.failed"
    assert [entry["token"] for entry in part_of(failed)["logprobs"]] == ["a"]


async def test_the_client_reads_them() -> None:
    async with (
        serving(FakeEngine(TEXT)) as served,
        AsyncOpenAI(base_url=served.base, api_key="none") as client,
    ):
        response = await client.responses.create(
            model=MODEL, input="Hi", top_logprobs=1, include=["message.output_text.logprobs"]
        )
    part = response.output[0].content[0]  # type: ignore[union-attr]
    assert part.logprobs is not None  # type: ignore[union-attr]
    assert [entry.bytes for entry in part.logprobs] == BYTES  # type: ignore[union-attr]
    assert math.isclose(part.logprobs[3].top_logprobs[0].logprob, -0.5)  # type: ignore[union-attr]


def test_half_a_character_is_told_with_its_bytes_and_no_text() -> None:
    """Its token comes with an empty delta, the text with the token that completes it."""
    request = parse_create({"input": "x", "include": INCLUDE}, Settings())
    events = ResponseEvents(request, GenerationRequest((1,)), MODEL, ByteTokenizer())
    first, second = TokenLogprob(0xC3, -0.5), TokenLogprob(0xA9, -0.25, ((0xA9, -0.25), (65, -1.0)))
    begun = list(events.begin())
    assert begun[-1].type == "response.content_part.added"
    made = [
        *events.delta(Delta("", (0xC3,), ("target",), 0, (first,))),
        *events.delta(Delta("\u00e9", (0xA9,), ("target",), 1, (second,))),
    ]
    assert [event.fields["delta"] for event in made] == ["", "\u00e9"]
    assert [event.fields["logprobs"][0]["token"] for event in made] == ["\ufffd", "\ufffd"]
    assert described(second, ByteTokenizer()) == {
        "token": "\ufffd",
        "bytes": [0xA9],
        "logprob": -0.25,
        "top_logprobs": [
            {"token": "\ufffd", "bytes": [0xA9], "logprob": -0.25},
            {"token": "A", "bytes": [65], "logprob": -1.0},
        ],
    }
