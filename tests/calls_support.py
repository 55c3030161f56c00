"""Helpers for tests of calls: parts put together, functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gateway.calls.dialects import Manner
from gateway.calls.parts import CallBegun, CallDelta, CallEnded, Part, Text, Thought
from gateway.calls.reader import AnswerReader
from gateway.calls.tools import Tool

WEATHER = Tool(
    "get_weather",
    "The weather in a town.",
    {
        "type": "object",
        "properties": {
            "town": {"type": "string", "maxLength": 8},
            "unit": {"enum": ["celsius", "fahrenheit"]},
        },
        "required": ["town"],
        "additionalProperties": False,
    },
)
NOTHING = Tool("stop", None, {"type": "object", "properties": {}, "additionalProperties": False})
HERMES = Manner("hermes", told=True)
LLAMA3 = Manner("llama3", told=True)
MISTRAL = Manner("mistral", told=True)
NAMED = Manner("mistral", told=True, named_arguments=True)

Read = list[tuple[str, ...]]


def read(manner: Manner, pieces: Iterable[str], **options: bool) -> Read:
    """What an answer that comes in `pieces` is read as, each stretch of it as one."""
    reader = AnswerReader(manner, **{"calls": True, **options})
    parts: list[Part] = []
    for piece in pieces:
        parts += reader.push(piece)
    return together([*parts, *reader.finish()])


def together(parts: Sequence[Part]) -> Read:
    """("text", ...), ("thought", ...) and ("call", name, arguments), or ("cut", ...) of a call that
    was not whole."""
    made: Read = []
    names: dict[int, str] = {}
    arguments: dict[int, str] = {}
    for part in parts:
        if isinstance(part, Text | Thought):
            kind = "text" if isinstance(part, Text) else "thought"
            before = made.pop()[1] if made and made[-1][0] == kind else ""
            made.append((kind, before + part.text))
        elif isinstance(part, CallBegun):
            assert part.index == len(names)
            names[part.index], arguments[part.index] = part.name, ""
        elif isinstance(part, CallDelta):
            arguments[part.index] += part.arguments
        else:
            assert isinstance(part, CallEnded)
            kind = "call" if part.whole else "cut"
            made.append((kind, names[part.index], arguments[part.index]))
    return made
