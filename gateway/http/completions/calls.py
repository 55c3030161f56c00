"""Calls and thoughts as chat completions write them: in chunks, and whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gateway.calls.parts import CallBegun, CallDelta, Part, Text, Thought


def chat_delta(parts: Sequence[Part]) -> dict[str, Any]:
    """What a chunk adds to the message."""
    delta: dict[str, Any] = {}
    for name, kind in (("reasoning_content", Thought), ("content", Text)):
        text = "".join(part.text for part in parts if isinstance(part, kind))
        if text:
            delta[name] = text
    calls: dict[int, dict[str, Any]] = {}
    for part in parts:
        # One entry for each call: clients take the first that they find of an index.
        if isinstance(part, CallBegun):
            calls[part.index] = _piece(part)
        elif isinstance(part, CallDelta) and part.index in calls:
            calls[part.index]["function"]["arguments"] += part.arguments
        elif isinstance(part, CallDelta):
            calls[part.index] = _piece(part)
    return {**delta, "tool_calls": list(calls.values())} if calls else delta


def chat_extras(parts: Sequence[Part]) -> dict[str, Any]:
    """What a whole message has beside its content."""
    extras: dict[str, Any] = {}
    thought = "".join(part.text for part in parts if isinstance(part, Thought))
    if thought:
        extras["reasoning_content"] = thought
    calls = [_whole(part, parts) for part in parts if isinstance(part, CallBegun)]
    return {**extras, "tool_calls": calls} if calls else extras


def _piece(part: CallBegun | CallDelta) -> dict[str, Any]:
    if isinstance(part, CallDelta):
        return {"index": part.index, "function": {"arguments": part.arguments}}
    function = {"name": part.name, "arguments": ""}
    return {"index": part.index, "id": part.id, "type": "function", "function": function}


def _whole(call: CallBegun, parts: Sequence[Part]) -> dict[str, Any]:
    function = {"name": call.name, "arguments": arguments_of(call.index, parts)}
    return {"id": call.id, "type": "function", "function": function}


def arguments_of(index: int, parts: Sequence[Part]) -> str:
    """The arguments of call `index`."""
    return "".join(
        part.arguments for part in parts if isinstance(part, CallDelta) and part.index == index
    )
