"""Which client was shown to do what: every cell of the table below is a test.

The clients are unmodified and talk to a gateway with the tiny model. What they got is held to what
the model says alone; every event and every answer that openai-python and openai-node got is held
to the types of openai-python, strictly.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from models.constraints.source import ConstraintSource
from tests.clients_support import CLIENTS, FULL, KEY, node_modules, python_with, require_node
from tests.clients_support import run_client as run
from tests.http_serving import Served, serving, until
from tests.matrix_checks import CHECKS, ERRORS, SCHEMA, Heard
from tests.matrix_engine import WatchedEngine, watched_engine
from tests.strict_types import validate_completion, validate_event

# The ways that a client has: R is Responses over HTTP, W over a WebSocket, C chat completions and
# T completions. A dash is what it has no function for; why stands below the row.
TABLE = """
                      text  turns  tools  schema  logprobs  stop  n   errors  cancel
openai-python         RCT   RC     RC     RC      RCT       RCT   CT  RCT     RCT
openai-python-async   RCT   RC     RC     RC      RCT       RCT   CT  RCT     RCT
# n: the Responses API has none, for all clients. Completions have no turns, functions or `parse`.
openai-socket         W     W      W      W       W         W     -   W       W
openai-socket-async   W     W      W      W       W         W     -   W       W
openai-node           RCTW  RCW    RCW    RCW     RCTW      RCTW  CT  RCTW    RCTW
openai-agents         RCW   RCW    RCW    RCW     RCW       RCW   -   RCW     RCW
# n: a runner goes on from one answer.
llm                   RCT   RC     RC     RC      T         CT    -   RCT     RCT
# logprobs: only of completion models. stop: it does not pass it on to Responses. n: none.
# tools: it cannot say that a function must be called, so that the model is made to.
langchain-openai      RC    RC     RC     RC      C         C     C   RC      RC
# logprobs, stop: over Responses it drops the one and passes the other not on.
ai-sdk                CT    C      C      C       -         CT    -   CT      CT
# logprobs, n: the provider reads neither. turns: it writes a prompt of its own for completions.
"""
SCRIPTS = {
    "openai-python": ("python", "matrix_openai.py", "sync"),
    "openai-python-async": ("python", "matrix_openai.py", "async"),
    "openai-socket": ("python", "matrix_socket.py", "sync"),
    "openai-socket-async": ("python", "matrix_socket.py", "async"),
    "openai-node": ("node", "matrix_openai.js"),
    "openai-agents": ("agents", "matrix_agents.py"),
    "llm": ("llm", "matrix_llm.py"),
    "langchain-openai": ("langchain", "matrix_langchain.py"),
    "ai-sdk": ("node", "matrix_ai_sdk.js"),
}
CLASSES = {
    "model": "NotFoundError",
    "value": "BadRequestError",
    "full": "RateLimitError",
    "key": "AuthenticationError",
}
"""Of the errors of openai-python and openai-node, and of the clients that are built on them."""

UNTOLD_AT_THE_DOOR = ("openai-socket", "openai-socket-async", "openai-node", "openai-agents")
"""A socket that is refused tells them its status alone."""


SEEN = (
    "openai-python",
    "openai-python-async",
    "openai-socket",
    "openai-socket-async",
    "openai-node",
)
"""The clients that show what came over the wire."""


def cells() -> Iterator[tuple[str, str, str]]:
    """Client, feature, and the ways that it has, none for a dash."""
    head, *rows = [line for line in TABLE.splitlines() if line and not line.startswith("#")]
    features = head.split()
    for row in rows:
        client, *ways = row.split()
        assert len(ways) == len(features), row
        for feature, letters in zip(features, ways, strict=True):
            yield client, feature, letters.strip("-")


COVERED = [cell for cell in cells() if cell[2]]


def test_the_table_is_whole() -> None:
    clients = dict.fromkeys(client for client, _, _ in cells())
    assert list(clients) == list(SCRIPTS)
    assert list(dict.fromkeys(feature for _, feature, _ in cells())) == list(CHECKS)
    lacking = [(client, feature) for client, feature, ways in cells() if not ways]
    assert len(lacking) == 6


@pytest.fixture(scope="module")
def runs() -> dict[str, Heard]:
    """What each client got, once its script has run."""
    return {}


def command_of(client: str, directory: Path) -> list[str | Path]:
    kind, script, *more = SCRIPTS[client]
    if kind == "node":
        require_node()
        for name in ("matrix.js", script, "package.json"):
            shutil.copy(CLIENTS / "node" / name, directory)
        (directory / "node_modules").symlink_to(node_modules() / "node_modules")
        return ["node", directory / script]
    # openai-python is among the packages of the tests themselves.
    python = Path(sys.executable) if kind == "python" else python_with(kind)
    return [python, CLIENTS / "python" / script, *more]


async def heard_by(client: str, package: Path, directory: Path) -> Heard:
    program, script, *more = command_of(client, directory)
    async with watched_engine(package) as engine, serving(engine, api_keys=(KEY,)) as served:
        if client == "llm":
            engine.forced = await forced_calls(served, engine)
        name = engine.package.manifest.name
        command = [program, script, served.base, name, KEY, FULL, *more]
        found = await run(command, directory=directory)
        await until(lambda: engine.watch.active == 0)
        return await Heard.of(found, engine)


async def forced_calls(served: Served, engine: WatchedEngine) -> ConstraintSource | None:
    """What an answer must be that has to call the function of the matrix."""
    function = {"name": "get_weather", "parameters": SCHEMA}
    asked = {
        "messages": [{"role": "user", "content": "Hi"}],
        "tools": [{"type": "function", "function": function}],
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "max_tokens": 1,
    }
    key = {"Authorization": f"Bearer {KEY}"}
    async with (
        aiohttp.ClientSession(headers=key) as session,
        session.post(f"{served.base}/chat/completions", json=asked) as answer,
    ):
        assert answer.status == 200, await answer.text()
    return engine.asked.pop().request.constraint


@pytest.mark.parametrize(("client", "feature", "ways"), COVERED)
async def test_cell(
    client: str,
    feature: str,
    ways: str,
    roomy_package: Path,
    runs: dict[str, Heard],
    tmp_path: Path,
) -> None:
    if client not in runs:
        runs[client] = await heard_by(client, roomy_package, tmp_path)
    heard = runs[client]
    got = heard.found["cells"][feature]
    assert "broken" not in got, got["broken"]
    assert sorted(got) == sorted(ways)
    for way in ways:
        CHECKS[feature](heard, way, got[way])
        if feature == "errors":
            check_classes(client, way, got[way])


def check_classes(client: str, way: str, cell: dict[str, Any]) -> None:
    """The client's own class for each, its code where it has one, and what was said."""
    for name, error in cell.items():
        if way == "W" and name == "key" and client in UNTOLD_AT_THE_DOOR:
            assert "401" in error["message"]
            continue
        code, said = ERRORS[name]
        assert said in error["message"], name
        assert error["code"] in (code, None)
        if client not in ("llm", "ai-sdk") and way != "W":
            assert CLASSES[name] in error["kinds"]
            assert error["code"] == code
        if client == "ai-sdk":
            assert "AI_APICallError" in error["kinds"]


@pytest.mark.parametrize("client", SEEN)
async def test_types(
    client: str, roomy_package: Path, runs: dict[str, Heard], tmp_path: Path
) -> None:
    """Everything that came over the wire is what the types say, nothing missing, nothing more."""
    if client not in runs:
        runs[client] = await heard_by(client, roomy_package, tmp_path)
    found = runs[client].found
    for event in found.get("events", ()):
        validate_event(event, socket=False)
    for event in found.get("socketEvents", ()):
        validate_event(event)
    for chunk in found.get("chunks", ()):
        validate_completion(chunk)
    kinds = {event["type"] for name in ("events", "socketEvents") for event in found.get(name, ())}
    assert "response.output_text.delta" in kinds
    assert "response.function_call_arguments.delta" in kinds
