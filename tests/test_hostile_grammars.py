"""No constraint takes the gateway's process down, or holds it up: sent to a real one."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from tests.test_commands_serve import Process, served

LEAKS = re.compile(r"lexer|fuel|panic|llguidance|non-verbose|regex parse error|\n|<\[")


def schema(value: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "s", "schema": value}}


def regex(text: str) -> dict[str, Any]:
    return {"type": "regex", "regex": text}


def lark(*rules: str) -> dict[str, Any]:
    return {"type": "grammar", "grammar": "\n".join(rules)}


def nested(levels: int, wrap: Any) -> Any:
    value: Any = {"type": "null"}
    for _ in range(levels):
        value = wrap(value)
    return value


def references(count: int, wrap: Any) -> dict[str, Any]:
    chain = {f"{n:x}": wrap({"$ref": f"#/$defs/{n + 1:x}"}) for n in range(count)}
    return {"$defs": {**chain, f"{count:x}": {"type": "null"}}, "$ref": "#/$defs/0"}


def holding(value: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": value}, "required": ["a"]}


NASTY: dict[str, dict[str, Any]] = {
    "groups in groups": regex("(" * 8000 + "a" + ")" * 8000),
    "groups as deep as may be": regex("(?:" * 120 + "a" + "b?c?)*" * 120),
    "repetitions of repetitions": regex("((a{0,1000}){0,1000}){0,1000}"),
    "a repetition of a million": regex("a{1000000}"),
    "states without end": regex("(.*a.{0,500}){3}"),
    "a state for each subset": regex(".*a.{400}"),
    "ambiguous repetitions": regex(".{0,2000}.{0,2000}b"),
    "all optional": regex("a?" * 8000),
    "a long alternation": regex("|".join(f"{n * 7919 % 100_003}" for n in range(2700))),
    "alternatives with one beginning": regex("|".join("a" * n + "b" for n in range(170))),
    "words of any script": regex(r"(\w{1,100}\s){1,100}"),
    "brackets in brackets": lark("start: " + "(" * 5000 + '"a"' + ")" * 5000),
    "rules in rules": lark("start: r0", *(f'r{n}: "a"? r{n + 1}' for n in range(900)), 'r900: "x"'),
    "tokens in tokens": lark(
        "start: T0", *(f'T{n}: "a"? T{n + 1} "b"?' for n in range(900)), 'T900: "x"'
    ),
    "a rule that doubles": lark("start: s", 's: s s s | s s | "a" | '),
    "a rule that never ends": lark('start: "a" start'),
    "nothing but itself": lark("start: start"),
    "all may be left out": lark("start: " + "a? " * 3000, 'a: "x" | "y"'),
    "complements": lark("start: A", "A: /.*/ & ~/.*a.{100}/ & ~/.*b.{120}/"),
    "many tokens at once": lark(
        "start: " + " | ".join(f"A{n}" for n in range(450)),
        *(f"A{n}: /.*x{{{n}}}.*/" for n in range(450)),
    ),
    "cases in cases": schema(nested(14, lambda inner: {"anyOf": [inner, {"type": "string"}]})),
    "arrays in arrays": schema(nested(15, lambda inner: {"type": "array", "items": inner})),
    "deeper than is taken": schema(nested(45, lambda inner: {"allOf": [inner]})),
    "references in a row": schema(references(1900, lambda inner: inner)),
    "objects in a row": schema(references(700, holding)),
    "a large enumeration": schema({"enum": [f"value {n * 7919 % 100_003}" for n in range(3500)]}),
    "long values": schema({"enum": ["a" * n for n in range(350)]}),
    "many properties": schema({"type": "object", "properties": {f"p{n}": {} for n in range(2500)}}),
    "patterns all at once": schema(
        {"allOf": [{"type": "string", "pattern": f"a{{{n}}}b"} for n in range(30)]}
    ),
    "patterns that multiply": schema(
        {
            "allOf": [
                {"type": "string", "pattern": f".*{chr(97 + n)}.{{{20 + n}}}"} for n in range(20)
            ]
        }
    ),
    "ten million elements": schema({"type": "array", "minItems": 10**7, "items": {}}),
    "a billion characters": schema({"type": "string", "minLength": 10**9}),
    "multiples": schema({"type": "integer", "multipleOf": 99_991}),
    "a range of floats": schema({"type": "number", "minimum": 1e-300, "maximum": 1e300}),
    "a schema that never ends": schema(
        {"$defs": {"n": holding({"$ref": "#/$defs/n"})}, **holding({"$ref": "#/$defs/n"})}
    ),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tiny_package: Path) -> AsyncIterator[Process]:
    async with served("--package", str(tiny_package), "--slots", "2") as running:
        yield running


async def complete(gateway: Process, seconds: float = 60.0, **fields: Any) -> tuple[int, Any]:
    body = {"prompt": "hello", "max_tokens": 24, **fields}
    timeout = aiohttp.ClientTimeout(total=seconds)
    async with (
        aiohttp.ClientSession(timeout=timeout) as session,
        session.post(f"{gateway.url}/completions", json=body) as response,
    ):
        return response.status, await response.json()


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("name", NASTY)
async def test_it_answers_or_refuses_and_lives(gateway: Process, name: str) -> None:
    """Beside each a plain answer is given, and another one behind it."""
    for extra in ({}, {"temperature": 1.5, "seed": 3, "speculation": {"off": True}}):
        hostile = asyncio.create_task(complete(gateway, response_format=NASTY[name], **extra))
        status, body = await complete(gateway, seconds=20, ignore_eos=True)
        assert (status, body["usage"]["completion_tokens"]) == (200, 24)
        status, body = await hostile
        assert status in (200, 400), body
        if status == 400:
            assert body["error"]["param"].startswith("response_format")
            assert not LEAKS.search(body["error"]["message"]), body
            assert len(body["error"]["message"]) < 250
    assert (await complete(gateway))[0] == 200
    assert gateway.process.returncode is None
    assert not any("Traceback" in line or "ERROR" in line for line in gateway.lines)


@pytest.mark.asyncio(loop_scope="module")
async def test_slow_schemas_keep_no_quick_one_waiting(gateway: Process) -> None:
    def slow(first: int) -> dict[str, Any]:
        patterns = [{"type": "string", "pattern": f"a{{{first + n}}}b"} for n in range(40)]
        return schema({"allOf": patterns})

    tasks = [asyncio.create_task(complete(gateway, response_format=slow(n))) for n in range(4)]
    status, body = await complete(gateway, response_format=regex("[a-z]{4} at once"))
    assert (status, body["choices"][0]["text"][4:]) == (200, " at once")
    assert not all(task.done() for task in tasks), "four that take five seconds each"
    for status, body in await asyncio.gather(*tasks):
        assert (status, body["error"]["code"]) == (400, "unsupported_value")
        assert re.search(r"takes more than 5 s|within 10 s", body["error"]["message"])
