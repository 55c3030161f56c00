"""openai-agents, langchain-openai and `llm`, unmodified, each in an environment of its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.clients_support import CLIENTS, FULL, KEY, SelectiveEngine, python_with, run, run_client
from tests.fake_engine import MODEL
from tests.http_serving import Served, serving

SAID = "Hello, world"
HI = "<user>Hi</><assistant>"
BRIEF = "<system>Be brief.</>"
AND = f"{HI}{SAID}</><user>And?</><assistant>"


@pytest.fixture(scope="module")
def agents() -> Path:
    return python_with("agents")


@pytest.fixture(scope="module")
def langchain() -> Path:
    return python_with("langchain")


@pytest.fixture(scope="module")
def llm() -> Path:
    return python_with("llm")


async def said_by(
    python: Path, script: str, directory: Path
) -> tuple[dict[str, Any], SelectiveEngine]:
    engine = SelectiveEngine(SAID)
    async with serving(engine, api_keys=(KEY,)) as served:
        command = [python, CLIENTS / "python" / script, served.base, MODEL, KEY, FULL]
        found = await run_client(command, directory=directory)
        assert served.gateway.running == engine.running == 0
    return found, engine


def prompts(engine: SelectiveEngine) -> list[str]:
    return [engine.prompt(index) for index in range(len(engine.requests))]


async def test_openai_agents(agents: Path, tmp_path: Path) -> None:
    found, engine = await said_by(agents, "run_agents.py", tmp_path)
    for way in ("responses", "chat", "socket"):
        got = found[way]
        assert [got["text"], got["second"], got["streamed"]] == [SAID] * 3, way
        assert "".join(got["deltas"]) == SAID
        assert len(got["deltas"]) > 1
        assert got["third"] == (None if way == "chat" else SAID)
    assert found["responses"]["tokens"] == found["chat"]["tokens"] == len(SAID)
    asked = [BRIEF + HI, BRIEF + AND]
    continued = BRIEF + AND.removesuffix("<assistant>")
    continued += f"<assistant>{SAID}</><user>More?</><assistant>"
    by_id = [*asked, continued, BRIEF + HI]
    assert prompts(engine) == [*by_id, *asked, BRIEF + HI, *by_id]
    assert {request.sampling.temperature for request in engine.requests} == {0}
    for way in ("responses", "chat"):
        errors = found[way]["errors"]
        assert (errors["model"]["classes"][0], errors["model"]["code"]) == (
            "NotFoundError",
            "model_not_found",
        )
        assert errors["full"]["classes"][0] == "RateLimitError"
        assert errors["key"]["classes"][0] == "AuthenticationError"
    errors = found["socket"]["errors"]
    assert errors["model"]["code"] == "model_not_found"
    assert errors["full"]["code"] == "queue_full"
    assert errors["key"]["classes"]


async def test_langchain_openai(langchain: Path, tmp_path: Path) -> None:
    found, engine = await said_by(langchain, "run_langchain.py", tmp_path)
    for way in ("chat", "responses"):
        got = found[way]
        assert [got["text"], got["second"], got["async"]] == [SAID] * 3, way
        assert got["tokens"] == len(SAID)
        assert "".join(got["deltas"]) == SAID
        assert len(got["deltas"]) > 1
        for name, kind, code in (
            ("model", "NotFoundError", "model_not_found"),
            ("temperature", "BadRequestError", "unsupported_value"),
            ("full", "RateLimitError", "queue_full"),
            ("key", "AuthenticationError", "invalid_api_key"),
        ):
            assert kind in got["errors"][name]["classes"], (way, name)
            assert got["errors"][name]["code"] == code
    assert found["chat"]["logprobs"] == [-(n + 1) / 8 for n in range(len(SAID))]
    assert found["chat"]["stopped"] == "Hello"
    assert prompts(engine) == [BRIEF + HI, AND, HI, HI] * 2 + [HI, HI]


def llm_on(python: Path, served: Served, home: Path) -> Callable[..., Any]:
    """The command line of `llm` with two models of a gateway: the one it has, and another."""
    (home / "keys.json").write_text(json.dumps({"outpace": KEY, "wrong": "wrong"}))
    models = [
        {"model_id": "here", "model_name": MODEL, "api_key_name": "outpace"},
        {"model_id": "elsewhere", "model_name": "gpt-4", "api_key_name": "outpace"},
        {"model_id": "locked", "model_name": MODEL, "api_key_name": "wrong"},
    ]
    written = json.dumps([{**model, "api_base": served.base} for model in models])
    # JSON is YAML.
    (home / "extra-openai-models.yaml").write_text(written)

    async def command(*arguments: str) -> tuple[int, str, str]:
        return await run([python, "-m", "llm", *arguments], directory=home, LLM_USER_PATH=str(home))

    return command


async def test_llm(llm: Path, tmp_path: Path) -> None:
    engine = SelectiveEngine(SAID)
    async with serving(engine, api_keys=(KEY,)) as served:
        command = llm_on(llm, served, tmp_path)
        asked = (
            ("-m", "here", "-s", "Be brief.", "Hi"),
            ("-m", "here", "-c", "And?"),
            ("-m", "here", "--no-stream", "-o", "temperature", "0.5", "Hi"),
            ("-m", "here", "-o", "stop", ",", "Hi"),
        )
        answers = []
        for arguments in asked:
            code, said, errors = await command(*arguments)
            assert code == 0, errors
            answers.append(said.strip())
        refused = [
            await command("-m", model, said)
            for model, said in (("elsewhere", "Hi"), ("locked", "Hi"), ("here", "long " * 300))
        ]
    assert answers == [SAID, SAID, SAID, "Hello"]
    assert prompts(engine) == [BRIEF + HI, BRIEF + AND, HI, HI]
    assert engine.requests[2].sampling.temperature == 0.5
    for (code, said, errors), told in zip(
        refused,
        ("does not exist here", "A valid API key is needed", "the context holds 1000"),
        strict=True,
    ):
        assert code != 0
        assert said.strip() == ""
        assert told in errors
