"""The `messages` of a chat: text, calls of functions and their results."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from gateway.calls.tools import Call
from gateway.engine.conversation import Message
from gateway.http import foreign
from gateway.http.completions.limits import NOT_YET
from gateway.http.content import text_content
from gateway.http.fields import (
    MOST_ITEMS,
    few,
    missing,
    optional,
    required,
    typed,
    unsupported,
)
from gateway.http.responses.items import ROLES

TOOL = "tool"
ITEMS: Mapping[str, str] = MappingProxyType(
    {"function_call": foreign.CHAT_CALLS, "function_call_output": foreign.CHAT_RESULT}
)
"""Items of the Responses API, and what stands for them in a chat."""


def parse_messages(document: Mapping[str, Any]) -> tuple[Message, ...]:
    """A non-empty array. Raises `UserError` that names the message and its field."""
    messages = required(document, "messages", list)
    if not messages:
        raise missing("messages")
    few(messages, MOST_ITEMS, "messages")
    return tuple(_message(item, f"messages[{index}]") for index, item in enumerate(messages))


def _message(item: Any, param: str) -> Message:
    typed(item, dict, param)
    _require_form(item, param)
    role = required(item, "role", str, f"{param}.")
    if role == TOOL:
        call_id = required(item, "tool_call_id", str, f"{param}.")
        return Message("tool", _content(item, param), call_id=call_id)
    if role not in ROLES:
        known = ", ".join((*ROLES, TOOL))
        raise unsupported(f"{param}.role", role, f"{known} (others are {NOT_YET})")
    if item.get("audio"):
        raise unsupported(f"{param}.audio", item["audio"], f"absent (it is {NOT_YET})")
    calls = _calls(item, param) if role == "assistant" else ()
    empty = bool(calls) and item.get("content") is None
    thought = optional(item, "reasoning_content", str, f"{param}.") if role == "assistant" else None
    return Message(
        ROLES[role], "" if empty else _content(item, param), calls=calls, thought=thought or ""
    )


def _require_form(item: Mapping[str, Any], param: str) -> None:
    """Raise `UserError` for a call or a result as the Responses API, or chats once, wrote them."""
    kind = item.get("type")
    if "role" not in item and isinstance(kind, str) and kind in ITEMS:
        raise foreign.foreign_form(f"{param}.type", foreign.RESPONSES, ITEMS[kind])
    if item.get("function_call"):
        raise foreign.foreign_form(f"{param}.function_call", foreign.OLD, foreign.CHAT_CALLS)
    if item.get("role") == "function":
        raise foreign.foreign_form(f"{param}.role", foreign.OLD, foreign.CHAT_RESULT)


def _content(item: Mapping[str, Any], param: str) -> str:
    return text_content(
        item.get("content"), f"{param}.content", ("text",), f'"text" (others are {NOT_YET})'
    )


def _calls(item: Mapping[str, Any], param: str) -> tuple[Call, ...]:
    calls = optional(item, "tool_calls", list, f"{param}.") or []
    return tuple(_call(call, f"{param}.tool_calls[{index}]") for index, call in enumerate(calls))


def _call(value: Any, param: str) -> Call:
    typed(value, dict, param)
    kind = optional(value, "type", str, f"{param}.") or "function"
    if kind != "function":
        raise unsupported(f"{param}.type", kind, '"function"')
    function = required(value, kind, dict, f"{param}.")
    return Call(
        id=required(value, "id", str, f"{param}."),
        name=required(function, "name", str, f"{param}.{kind}."),
        arguments=required(function, "arguments", str, f"{param}.{kind}."),
    )
