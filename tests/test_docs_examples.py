"""Examples of the documents run as they stand there, on the demo's package."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.test_commands_serve import ROOT, Process, served

DOCUMENTS = (
    "README.md",
    *(f"docs/{name}.md" for name in ("RESPONSES", "STRUCTURED", "TOOLS", "COMPLETIONS")),
)
BASE = "http://127.0.0.1:8765/v1"
BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ENDS = ("data: [DONE]", "event: response.completed", "event: response.incomplete")


def examples() -> list[tuple[str, str, str]]:
    found = []
    for name in DOCUMENTS:
        blocks = BLOCK.findall((ROOT / name).read_text())
        assert blocks, f"{name} has examples"
        found += [(f"{Path(name).stem}-{n}", kind, code) for n, (kind, code) in enumerate(blocks)]
    return found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(demo_package: Path) -> AsyncIterator[Process]:
    async with served("--package", str(demo_package)) as running:
        yield running


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("kind", "code"), [pytest.param(kind, code, id=name) for name, kind, code in examples()]
)
async def test_it_runs_and_says_something(gateway: Process, kind: str, code: str) -> None:
    assert BASE in code, "it can be pasted"
    command = {"python": [sys.executable, "-c"], "sh": ["bash", "-eo", "pipefail", "-c"]}[kind]
    process = await asyncio.create_subprocess_exec(
        *command,
        code.replace(BASE, gateway.url),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(120):
        output, _ = await process.communicate()
    said = output.decode()
    assert process.returncode == 0, said
    assert said.strip()
    assert not re.search(r'"error": ?\{', said)
    if kind == "sh" and "stream" in code:
        assert any(end in said for end in ENDS)
    elif kind == "sh":
        answer = "output" if "/v1/responses" in code else "choices"
        assert all(answer in each for each in objects(said))


def objects(text: str) -> list[dict[str, object]]:
    """JSON objects, one behind the other."""
    decoder, found = json.JSONDecoder(), []
    while text := text.strip():
        value, end = decoder.raw_decode(text)
        found.append(value)
        text = text[end:]
    return found
