"""Input items to messages. An item without `type` but with `role` and `content` is a message."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from gateway.engine.conversation import Message, Role
from gateway.http.content import text_content
from gateway.http.fields import missing, required, typed, unsupported, wrong_type

ROLES: Mapping[str, Role] = MappingProxyType(
    {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
)
TEXT_PARTS = ("input_text", "output_text", "text")


def parse_input(document: Mapping[str, Any]) -> tuple[Message, ...]:
    """The `input` of a request: a string or a non-empty array of message items."""
    value = document.get("input")
    if value is None:
        raise missing("input")
    if isinstance(value, str):
        return (Message("user", value),)
    if not isinstance(value, list):
        raise wrong_type("input", "a string or an array", value)
    if not value:
        raise missing("input")
    return tuple(_message(item, f"input[{index}]") for index, item in enumerate(value))


def _message(item: Any, param: str) -> Message:
    typed(item, dict, param)
    kind = item.get("type")
    if kind is None and not ("role" in item and "content" in item):
        raise missing(f"{param}.type")
    if kind is not None and typed(kind, str, f"{param}.type") != "message":
        raise unsupported(f"{param}.type", kind, '"message"')
    role = required(item, "role", str, f"{param}.")
    if role not in ROLES:
        raise unsupported(f"{param}.role", role, ", ".join(ROLES))
    return Message(
        ROLES[role],
        text_content(
            item.get("content"), f"{param}.content", TEXT_PARTS, '"input_text" or "output_text"'
        ),
    )
