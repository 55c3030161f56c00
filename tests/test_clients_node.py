"""openai-node and the AI SDK's OpenAI-compatible provider, unmodified: what they got is what was
said, and every event of openai-node's is held to the types of openai-python."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.clients_support import CLIENTS, FULL, KEY, SelectiveEngine, node_modules, require_node
from tests.clients_support import run_client as run
from tests.fake_engine import ENDLESS, MODEL, FakeGeneration
from tests.http_serving import serving, until
from tests.strict_types import (
    validate_completion,
    validate_event,
    validate_model,
    validate_response,
)

SAID = "Hello, world"
HI = "<user>Hi</><assistant>"


class PacedEngine(SelectiveEngine):
    """Has a long answer for who asks for it slowly."""

    def open_choices(self, request: Any, n: int) -> list[FakeGeneration]:
        slow = "slowly" in "".join(map(chr, request.prompt))
        self.answer, self.pace = (ENDLESS, 0.02) if slow else (SAID, 0.0)
        return super().open_choices(request, n)


@pytest.fixture(scope="module")
def modules() -> Path:
    require_node()
    return node_modules()


async def said_by(modules: Path, script: str, place: Path) -> tuple[dict[str, Any], PacedEngine]:
    # A script finds the packages beside it.
    shutil.copy(CLIENTS / "node" / script, place)
    shutil.copy(CLIENTS / "node" / "package.json", place)
    (place / "node_modules").symlink_to(modules / "node_modules")
    engine = PacedEngine(SAID)
    async with serving(engine, api_keys=(KEY,)) as served:
        found = await run(["node", place / script, served.base, MODEL, KEY, FULL], directory=place)
        await until(lambda: engine.running == 0)
        await until(lambda: served.gateway.running == 0)
    return found, engine


def deltas_of(events: list[dict[str, Any]]) -> str:
    return "".join(event.get("delta", "") for event in events)


async def test_openai_node(modules: Path, tmp_path: Path) -> None:
    found, engine = await said_by(modules, "run_openai.js", tmp_path)
    check_responses(found["responses"])
    check_chat(found["chat"])
    text = found["text"]
    assert text["texts"] == [SAID]
    assert "".join(c["choices"][0]["text"] for c in text["streamed"]) == SAID
    assert text["several"] == [0, 1, 2, 3]
    for chunk in text["streamed"]:
        validate_completion(chunk)
    check_socket(found["socket"])
    assert found["leave"] == {"seen": 2}
    (listed,) = found["models"]["listed"]
    validate_model(listed)
    turns = f"{HI}{SAID}</><user>?</><assistant>"
    assert engine.prompt(1) == f"{HI}{SAID}</><user>And?</><assistant>"
    assert engine.prompt(2) == turns
    assert turns in [engine.prompt(index) for index in range(3, len(engine.requests))]


def check_responses(found: dict[str, Any]) -> None:
    assert found["texts"] == [SAID] * 3
    assert found["helped"] == SAID
    for event in found["streamed"]:
        validate_event(event, socket=False)
    assert deltas_of(found["streamed"]) == SAID
    assert found["logprobs"] == [-(n + 1) / 8 for n in range(len(SAID))]
    stopped = {name: value for name, value in found["stopped"].items() if name != "output_text"}
    validate_response({name: value for name, value in stopped.items() if name[0] != "_"})
    assert (stopped["output"][0]["content"][0]["text"], stopped["stop_reason"]) == ("Hello", ",")
    assert {name: tuple(error.values()) for name, error in found["errors"].items()} == {
        "model": ("NotFoundError", 404, "model_not_found", "model"),
        "temperature": ("BadRequestError", 400, "unsupported_value", "temperature"),
        "lost": ("NotFoundError", 404, "previous_response_not_found", "previous_response_id"),
        "full": ("RateLimitError", 429, "queue_full", None),
        "key": ("AuthenticationError", 401, "invalid_api_key", None),
    }


def check_chat(found: dict[str, Any]) -> None:
    assert found["texts"] == [SAID] * 2
    for chunk in found["streamed"]:
        validate_completion(chunk)
    deltas = [choice["delta"] for chunk in found["streamed"] for choice in chunk["choices"]]
    assert "".join(delta.get("content") or "" for delta in deltas) == SAID
    assert found["streamed"][-1]["usage"]["completion_tokens"] == len(SAID)
    assert found["several"] == [0, 1, 2]
    assert found["logprobs"] == [-(n + 1) / 8 for n in range(len(SAID))]
    validate_completion(found["stopped"])
    assert found["stopped"]["choices"][0]["message"]["content"] == "Hello"
    assert [error["status"] for error in found["errors"].values()] == [404, 429]


def check_socket(found: dict[str, Any]) -> None:
    for events in (found["first"], found["second"], found["lost"], found["turned"]):
        for event in events:
            validate_event(event)
    assert deltas_of(found["first"]) == deltas_of(found["second"]) == SAID
    last = found["second"][-1]["response"]
    assert last["previous_response_id"] == found["first"][-1]["response"]["id"]
    assert found["lost"][-1]["error"]["code"] == "previous_response_not_found"
    assert found["turned"][-1]["error"]["code"] == "queue_full"
    assert found["heard"] == 2


async def test_the_ai_sdk(modules: Path, tmp_path: Path) -> None:
    found, engine = await said_by(modules, "run_ai_sdk.js", tmp_path)
    for way in ("chat", "text"):
        got = found[way]
        assert got["texts"] == [SAID] * 2, way
        assert got["finish"] == ["stop", "length"]
        assert got["usage"]["outputTokens"] == len(SAID)
        assert (got["limited"], got["stopped"]) == (SAID[:5], "Hello")
        assert "".join(got["streamed"]["deltas"]) == SAID
        assert len(got["streamed"]["deltas"]) > 1
        assert got["streamed"]["finish"] == "stop"
        assert got["streamed"]["usage"]["outputTokens"] == len(SAID)
    assert engine.prompt(0) == f"<system>Be brief.</>{HI}"
    assert engine.prompt(1) == f"{HI}{SAID}</><user>And?</><assistant>"
    errors = found["errors"]
    assert [errors[name]["status"] for name in ("model", "full", "key")] == [404, 429, 401]
    assert "does not exist here" in errors["model"]["message"]
    assert found["left"]["seen"] >= 2
