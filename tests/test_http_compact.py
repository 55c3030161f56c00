"""`/v1/responses/compact`: what the model is asked, and what stands for the conversation later."""

from __future__ import annotations

import base64
from typing import Any

import aiohttp
import openai
import orjson
import pytest
from openai import AsyncOpenAI

from gateway.engine.conversation import Message
from gateway.http.responses.compact import PENALTY, SUMMARY_TOKENS
from gateway.http.responses.compaction import ASK, compaction_item, expanded
from models.errors import UserError
from tests.clients_support import SelectiveEngine
from tests.fake_engine import MODEL, FakeEngine
from tests.http_serving import Served, ask, serving, socket_to
from tests.strict_types import validate_compacted

SUMMARY = "They like ships."
SAID: list[dict[str, Any]] = [
    {"role": "developer", "content": "Be brief."},
    {"role": "user", "content": [{"type": "input_text", "text": "I like ships."}]},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Oh."}]},
]


async def compact(served: Served, **fields: Any) -> tuple[int, dict[str, Any]]:
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{served.base}/responses/compact", json=fields) as response,
    ):
        return response.status, await response.json()


async def test_the_model_sums_up_and_the_item_stands_for_the_conversation() -> None:
    engine = FakeEngine(SUMMARY)
    async with serving(engine) as served, socket_to(served) as socket:
        status, compacted = await compact(served, model=MODEL, input=SAID)
        assert status == 200
        validate_compacted(compacted)
        items = [*compacted["output"], {"role": "user", "content": "What do I like?"}]
        events = await ask(socket, input=items)
    assert events[-1]["type"] == "response.completed"
    asked = "<system>Be brief.</><user>I like ships.</><assistant>Oh.</>"
    assert engine.prompt(0) == f"{asked}<user>{ASK}</><assistant>"
    assert engine.requests[0].max_tokens == SUMMARY_TOKENS
    asked_for = engine.requests[0]
    assert asked_for.named is None, "nothing is left to the package's advice"
    assert asked_for.sampling.temperature == 0
    assert asked_for.sampling.frequency_penalty == PENALTY == 0.1
    assert asked_for.sampling.repetition_penalty == 1, "what is in the prompt may be said again"
    summed_up = f"<system>Be brief.</><user>{ASK}</><assistant>{SUMMARY}</>"
    assert engine.prompt(1) == f"{summed_up}<user>What do I like?</><assistant>"
    assert compacted["usage"]["output_tokens"] == len(SUMMARY)


async def test_a_stored_turn_is_compacted_with_what_follows() -> None:
    engine = FakeEngine(SUMMARY)
    async with serving(engine) as served, socket_to(served) as socket:
        first = (await ask(socket, input=SAID))[-1]["response"]["id"]
        _, alone = await compact(served, model=MODEL, previous_response_id=first)
        _, behind = await compact(
            served, model=MODEL, previous_response_id=first, input="And trains.", instructions="!"
        )
        # Nothing of it is kept, and what it was made of still is.
        lost = await ask(socket, input="x", previous_response_id=alone["id"])
        assert lost[0]["error"]["code"] == "previous_response_not_found"
        kept = await ask(socket, input="x", previous_response_id=first)
        assert kept[-1]["type"] == "response.completed"
    said = "<system>Be brief.</><user>I like ships.</><assistant>Oh.</>"
    said += f"<assistant>{SUMMARY}</>"
    assert engine.prompt(1) == f"{said}<user>{ASK}</><assistant>"
    assert engine.prompt(2) == f"<system>!</>{said}<user>And trains.</><user>{ASK}</><assistant>"
    for compacted in (alone, behind):
        (item,) = compacted["output"]
        assert expanded(item, "input[0]")[0] == Message("system", "Be brief.")
        kept = [message.content for message in expanded(item, "input[0]")]
        assert kept == ["Be brief.", ASK, SUMMARY], "instructions are not"


async def test_the_client_compacts() -> None:
    engine = SelectiveEngine(SUMMARY)
    async with (
        serving(engine) as served,
        AsyncOpenAI(base_url=served.base, api_key="none", max_retries=0) as client,
    ):
        compacted = await client.responses.compact(model=MODEL, input="I like ships.")
        validate_compacted(compacted.to_dict())
        again = await client.responses.create(
            model=MODEL, input=[*compacted.output, {"role": "user", "content": "?"}]
        )
        assert again.output_text == SUMMARY
        engine.refusals = 1
        with pytest.raises(openai.RateLimitError):
            await client.responses.compact(model=MODEL, input="x")
        with pytest.raises(openai.NotFoundError):
            await client.responses.compact(model="gpt-4", input="x")


@pytest.mark.parametrize(
    ("fields", "status", "code", "param"),
    [
        ({"input": "x"}, 400, "missing_required_parameter", "model"),
        ({"model": MODEL}, 400, "missing_required_parameter", "input"),
        ({"model": MODEL, "input": []}, 400, "missing_required_parameter", "input"),
        ({"model": MODEL, "input": 7}, 400, "invalid_type", "input"),
        ({"model": MODEL, "input": [7]}, 400, "invalid_type", "input[0]"),
        ({"model": MODEL, "input": "x", "instructions": 7}, 400, "invalid_type", "instructions"),
        (
            {"model": MODEL, "previous_response_id": "none"},
            404,
            "previous_response_not_found",
            "previous_response_id",
        ),
        ({"model": MODEL, "input": "long " * 300}, 400, "context_length_exceeded", "input"),
    ],
)
async def test_what_cannot_be_compacted(
    fields: dict[str, Any], status: int, code: str, param: str
) -> None:
    async with serving(FakeEngine(SUMMARY)) as served:
        found, body = await compact(served, **fields)
    assert (found, body["error"]["code"], body["error"]["param"]) == (status, code, param)


async def test_no_summary_is_no_success() -> None:
    engine = FakeEngine(" ")
    async with serving(engine) as served:
        status, body = await compact(served, model=MODEL, input="x")
        assert (status, body["error"]["code"]) == (500, "server_error")
        assert "in no words" in body["error"]["message"]
        engine.failure = RuntimeError("the device is gone")
        status, body = await compact(served, model=MODEL, input="x")
        assert (status, body["error"]["code"]) == (500, "server_error")
        assert "device" not in body["error"]["message"]


def test_an_item_holds_what_was_put_in() -> None:
    item = compaction_item(["One.", "Zwei \u2603"], "\u00dcn\u00efcode \U0001f600")
    assert expanded(item, "p") == (
        Message("system", "One."),
        Message("system", "Zwei \u2603"),
        Message("user", ASK),
        Message("assistant", "\u00dcn\u00efcode \U0001f600"),
    )


def wrapped(content: object) -> str:
    return "outpace1." + base64.urlsafe_b64encode(orjson.dumps(content)).decode()


@pytest.mark.parametrize(
    "content",
    [
        "gAAAAABpM0Yj",
        "outpace1.",
        "outpace1.!!!!",
        "outpace1.e30",
        wrapped([]),
        wrapped({}),
        wrapped({"system": [], "summary": 7}),
        wrapped({"system": "x", "summary": "y"}),
        wrapped({"system": [7], "summary": "y"}),
        "outpace1." + base64.urlsafe_b64encode(b"[" * 3000).decode(),
        "outpace1." + base64.urlsafe_b64encode(b"\xff\xfe").decode(),
        "outpace1.\u2603",
    ],
)
def test_an_item_that_is_not_ours_is_refused(content: str) -> None:
    with pytest.raises(UserError) as refused:
        expanded({"type": "compaction", "encrypted_content": content}, "input[2]")
    assert refused.value.param == "input[2].encrypted_content"
