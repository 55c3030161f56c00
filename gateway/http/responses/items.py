"""Input items to messages. An item without `type` but with `role` and `content` is a message."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from gateway.calls.tools import Call
from gateway.engine.conversation import Message, Role
from gateway.http import foreign
from gateway.http.content import text_content
from gateway.http.fields import (
    MOST_ITEMS,
    few,
    invalid,
    missing,
    optional,
    required,
    short,
    typed,
    unsupported,
    wrong_type,
)
from gateway.http.responses import compaction

ROLES: Mapping[str, Role] = MappingProxyType(
    {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
)
TEXT_PARTS = ("input_text", "output_text", "text")
_UNTOLD = "\udfff"
"""Stands for a thought that was not told; a lone surrogate, which decoded JSON never holds."""


def parse_input(document: Mapping[str, Any]) -> tuple[Message, ...]:
    """The `input` of a request: a string or a non-empty array of items.

    Thoughts and calls become part of the message that they belong to; a compaction is several.
    """
    value = document.get("input")
    if value is None:
        raise missing("input")
    if isinstance(value, str):
        return (Message("user", value),)
    if not isinstance(value, list):
        raise wrong_type("input", "a string or an array", value)
    if not value:
        raise missing("input")
    few(value, MOST_ITEMS, "input")
    messages: list[Message] = []
    for index, item in enumerate(value):
        for message in _messages(item, f"input[{index}]"):
            joined = bool(messages) and _continues(messages[-1], message)
            messages.append(_joined(messages.pop(), message) if joined else message)
    said = tuple(message for message in messages if not _unspoken(message))
    if not said:
        raise missing("input")
    return said


def require_calls(messages: Sequence[Message], before: Sequence[Message]) -> None:
    """Raise `UserError` where one of `messages` is the result of a call that was not made, neither
    in them nor `before`."""
    made = {call.id for message in before for call in message.calls}
    for message in messages:
        made.update(call.id for call in message.calls)
        if message.role == "tool" and message.call_id not in made:
            raise invalid(
                "input",
                f"has the output of a call {short(message.call_id or '')!r}"
                " that was not made before it",
            )


def _messages(item: Any, param: str) -> tuple[Message, ...]:
    typed(item, dict, param)
    if item.get("type") == compaction.KIND:
        return compaction.expanded(item, param)
    return (_read(item, param),)


def _read(item: Mapping[str, Any], param: str) -> Message:
    kind = item.get("type")
    if kind is None and not ("role" in item and "content" in item):
        raise missing(f"{param}.type")
    kind = "message" if kind is None else typed(kind, str, f"{param}.type")
    if kind not in _KINDS:
        raise unsupported(f"{param}.type", kind, ", ".join(f'"{known}"' for known in _KINDS))
    return _KINDS[kind](item, param)


def _message(item: Mapping[str, Any], param: str) -> Message:
    role = required(item, "role", str, f"{param}.")
    if item.get("tool_calls"):
        raise foreign.foreign_form(f"{param}.tool_calls", foreign.CHAT, foreign.CALL_ITEM)
    if role == "tool":
        raise foreign.foreign_form(f"{param}.role", foreign.CHAT, foreign.RESULT_ITEM)
    if role not in ROLES:
        raise unsupported(f"{param}.role", role, ", ".join(ROLES))
    return Message(ROLES[role], _text(item.get("content"), f"{param}.content"))


def _call(item: Mapping[str, Any], param: str) -> Message:
    name, arguments, call_id = (
        required(item, field, str, f"{param}.") for field in ("name", "arguments", "call_id")
    )
    return Message("assistant", "", calls=(Call(call_id, name, arguments),))


def _output(item: Mapping[str, Any], param: str) -> Message:
    call_id = required(item, "call_id", str, f"{param}.")
    return Message("tool", _text(item.get("output"), f"{param}.output"), call_id=call_id)


def _reasoning(item: Mapping[str, Any], param: str) -> Message:
    """What was thought in the open: a summary is not the thought, and what is encrypted is not
    ours."""
    parts = optional(item, "content", list, f"{param}.") or []
    thought = text_content(parts, f"{param}.content", ("reasoning_text",), '"reasoning_text"')
    return Message("assistant", "", thought=thought or _UNTOLD)


def _text(value: Any, param: str) -> str:
    return text_content(value, param, TEXT_PARTS, '"input_text" or "output_text"')


_KINDS: Mapping[str, Callable[[Mapping[str, Any], str], Message]] = MappingProxyType(
    {
        "message": _message,
        "function_call": _call,
        "function_call_output": _output,
        "reasoning": _reasoning,
    }
)


def _unspoken(message: Message) -> bool:
    """A thought that nothing came of."""
    return bool(message.thought) and not message.content and not message.calls


def _continues(before: Message, message: Message) -> bool:
    """Whether both are one turn of the assistant: a thought, then something said, then calls."""
    if before.role != "assistant" or message.role != "assistant":
        return False
    if message.calls:
        return True
    return not before.calls and not before.content and bool(before.thought)


def _joined(before: Message, message: Message) -> Message:
    thought = (before.thought + message.thought).replace(_UNTOLD, "")
    return replace(
        before,
        content=before.content + message.content,
        calls=before.calls + message.calls,
        thought=thought,
    )
