"""Requests that went wrong: valid ones with a part exchanged, removed or doubled, and JSON that is
none. Strategies of hypothesis; what they draw is the text of a body or of a message."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

from hypothesis import strategies as st

from tests.fake_engine import MODEL

Path = tuple[str | int, ...]

# Texts that stand for themselves in JSON, most of them not valid there.
RAW = (
    "1e400",
    "-1e400",
    "1e-400",
    "1" * 5000,
    "-" + "9" * 400,
    "9223372036854775808",
    "18446744073709551616",
    "0." + "3" * 3000,
    "NaN",
    "Infinity",
    "-Infinity",
    "01",
    "+1",
    "1.",
    "0x10",
    "'x'",
    "undefined",
    '"\\ud800"',
    '"\\udc00\\ud800"',
    '"\\u0000"',
    '"\\x41"',
    '"\x01"',
    '"unended',
    "[" * 100_000,
    "[" * 100_000 + "]" * 100_000,
    "[" * 240 + "]" * 240,
    '{"a":' * 20_000 + "1" + "}" * 20_000,
    "[1,]",
    "{,}",
    "",
)
HOSTILE: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    2.5,
    1e308,
    -1e308,
    5e-324,
    1 << 31,
    1 << 63,
    -(1 << 63),
    (1 << 63) - 1,
    10**40,
    "",
    " ",
    "x",
    "\x00",
    "\ufeff\u202e",
    "\U0001f600" * 300,
    "%s%n{0}{{x}}",
    "../../etc/passwd",
    "x" * 5000,
    [],
    {},
    [[]],
    [{}],
    [None],
    {"": None},
    {"a": {"b": {"c": {}}}},
    [0] * 2000,
    ["x"] * 2000,
    {str(n): n for n in range(2000)},
    {"type": "x"},
    {"role": "user", "content": None},
)
VALID_SOCKET: tuple[dict[str, Any], ...] = (
    {"type": "response.create", "input": "Hi"},
    {
        "type": "response.create",
        "model": MODEL,
        "input": [
            {"role": "system", "content": "Be brief."},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}]},
        ],
        "instructions": "Be brief.",
        "max_output_tokens": 8,
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 5,
        "seed": 7,
        "stop": ["END"],
        "logit_bias": {"7": -1},
        "metadata": {"a": "b"},
        "store": True,
        "stream_id": "lane",
        "top_logprobs": 2,
        "include": ["speculation", "message.output_text.logprobs"],
        "speculation": {"policy": "fixed", "length": 3, "rule": "typical", "epsilon": 0.1},
        "text": {"format": {"type": "text"}},
        "tools": [],
        "tool_choice": "auto",
        "reasoning": {"effort": None},
        "stream_options": {"include_obfuscation": False},
    },
    {"type": "response.create", "input": "Hi", "previous_response_id": "resp_none"},
    {"type": "response.cancel", "response_id": "resp_none"},
    {"type": "response.steer", "input": "left", "previous_response_id": "resp_none"},
)
VALID_POSTED: tuple[tuple[str, dict[str, Any]], ...] = (
    *(
        ("/v1/responses", {name: value for name, value in each.items() if name != "type"})
        for each in VALID_SOCKET[:3]
    ),
    ("/v1/responses", {"input": "Hi", "stream": True}),
    ("/v1/responses/compact", {"model": MODEL, "input": [{"role": "user", "content": "Hi"}]}),
    (
        "/v1/chat/completions",
        {
            "model": MODEL,
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
                {"role": "assistant", "content": "Oh."},
                {"role": "user", "content": "Hi"},
            ],
            "max_tokens": 8,
            "max_completion_tokens": 8,
            "n": 2,
            "stop": "x",
            "logprobs": True,
            "top_logprobs": 3,
            "presence_penalty": 0.5,
            "stream": True,
            "stream_options": {"include_usage": True},
            "response_format": {"type": "text"},
            "tools": [],
            "user": "me",
            "speculation": {"off": True},
        },
    ),
    (
        "/v1/completions",
        {
            "prompt": ["Hi", [72, 105]],
            "max_tokens": 4,
            "n": 2,
            "echo": True,
            "logprobs": 2,
            "best_of": 2,
            "suffix": "",
            "min_tokens": 1,
            "stop_token_ids": [3],
            "ignore_eos": False,
            "min_p": 0.1,
            "repetition_penalty": 1.1,
            "frequency_penalty": -0.5,
        },
    ),
)


def paths(document: Any, at: Path = ()) -> Iterator[Path]:
    """Of everything in a document, itself first."""
    yield at
    items: Iterator[tuple[str | int, Any]] = iter(())
    if isinstance(document, dict):
        items = iter(document.items())
    elif isinstance(document, list):
        items = iter(enumerate(document))
    for key, value in items:
        yield from paths(value, (*at, key))


@st.composite
def mutated(draw: st.DrawFn, document: dict[str, Any]) -> str:
    """The JSON, or what ought to be JSON, of `document` with up to three parts changed."""
    changed: Any = copy.deepcopy(document)
    raws: list[str] = []
    for _ in range(draw(st.integers(1, 3))):
        change = draw(st.sampled_from((_replace, _replace_raw, _remove, _double, _add)))
        changed = change(draw, changed, raws)
    text = json.dumps(changed)
    for number, raw in enumerate(raws):
        text = text.replace(json.dumps(_marker(number)), raw)
    if draw(st.booleans()) and text.startswith("{"):
        # The same key twice: the last one counts, wherever it stands.
        key = draw(st.sampled_from(sorted(document)))
        text = "{" + f"{json.dumps(key)}:{json.dumps(draw(st.sampled_from(HOSTILE)))}," + text[1:]
    return text


@st.composite
def garbled(draw: st.DrawFn, document: dict[str, Any]) -> bytes:
    """The bytes of a document with a piece removed, doubled or overwritten."""
    data = json.dumps(document).encode()
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(data)))
        end = draw(st.integers(start, min(len(data), start + 40)))
        new = draw(
            st.one_of(
                st.just(b""),
                st.binary(max_size=8),
                st.just(data[start:end] * 2),
                st.sampled_from((b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"\x00")),
            )
        )
        data = data[:start] + new + data[end:]
    return data


Change = Callable[[st.DrawFn, Any, list[str]], Any]


def _replace(draw: st.DrawFn, document: Any, raws: list[str]) -> Any:
    return _put(document, draw(_path(document)), copy.deepcopy(draw(st.sampled_from(HOSTILE))))


def _replace_raw(draw: st.DrawFn, document: Any, raws: list[str]) -> Any:
    raws.append(draw(st.sampled_from(RAW)))
    return _put(document, draw(_path(document)), _marker(len(raws) - 1))


def _remove(draw: st.DrawFn, document: Any, raws: list[str]) -> Any:
    path = draw(_path(document))
    if path:
        del _parent(document, path)[path[-1]]
    return document


def _double(draw: st.DrawFn, document: Any, raws: list[str]) -> Any:
    """A part of the document in the place of another."""
    source, target = draw(_path(document)), draw(_path(document))
    return _put(document, target, copy.deepcopy(_at(document, source)))


def _add(draw: st.DrawFn, document: Any, raws: list[str]) -> Any:
    if not isinstance(document, dict):
        return document
    names = sorted({key for _, each in VALID_POSTED for key in each} | {"type", "stream_id"})
    document[draw(st.sampled_from(names))] = copy.deepcopy(draw(st.sampled_from(HOSTILE)))
    return document


def _path(document: Any) -> st.SearchStrategy[Path]:
    return st.sampled_from(list(paths(document))[:400])


def _put(document: Any, path: Path, value: Any) -> Any:
    if not path:
        return value
    _parent(document, path)[path[-1]] = value
    return document


def _parent(document: Any, path: Path) -> Any:
    return _at(document, path[:-1])


def _at(document: Any, path: Path) -> Any:
    for key in path:
        document = document[key]
    return document


def _marker(number: int) -> str:
    return f"\x02raw {number}\x02"
