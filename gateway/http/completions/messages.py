"""The `messages` of a chat: text only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.engine.conversation import Message
from gateway.http.completions.limits import NOT_YET
from gateway.http.content import text_content
from gateway.http.fields import missing, required, typed, unsupported
from gateway.http.responses.items import ROLES

CALLS = ("tool_calls", "function_call", "audio")


def parse_messages(document: Mapping[str, Any]) -> tuple[Message, ...]:
    """A non-empty array. Raises `UserError` that names the message and its field."""
    messages = required(document, "messages", list)
    if not messages:
        raise missing("messages")
    return tuple(_message(item, f"messages[{index}]") for index, item in enumerate(messages))


def _message(item: Any, param: str) -> Message:
    typed(item, dict, param)
    role = required(item, "role", str, f"{param}.")
    if role not in ROLES:
        raise unsupported(f"{param}.role", role, f"{', '.join(ROLES)} (others are {NOT_YET})")
    for name in CALLS:
        if item.get(name):
            raise unsupported(f"{param}.{name}", item[name], f"absent (it is {NOT_YET})")
    return Message(
        ROLES[role],
        text_content(
            item.get("content"), f"{param}.content", ("text",), f'"text" (others are {NOT_YET})'
        ),
    )
