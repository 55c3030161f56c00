"""A conversation in few words, as an item that a client passes back in its place.

`encrypted_content` is the field's public name. It is encoded, not encrypted: a client's own
conversation, which stays with the client and is trusted as much as any message of its.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from gateway.engine.conversation import Message
from gateway.http.fields import invalid, required
from models.errors import UserError

KIND = "compaction"
ASK = (
    "Summarise our conversation so far, so that it can go on from your summary alone. Keep every"
    " fact, name, number, decision and open question; leave out everything else."
)
PREFIX = "outpace1."


def compaction_item(system: Sequence[str], summary: str) -> dict[str, Any]:
    """`system` messages are kept word for word."""
    content = orjson.dumps({"system": list(system), "summary": summary})
    return {
        "id": f"cmp_{secrets.token_hex(16)}",
        "type": KIND,
        "encrypted_content": PREFIX + base64.urlsafe_b64encode(content).decode(),
    }


def expanded(item: Mapping[str, Any], param: str) -> tuple[Message, ...]:
    """The messages that stand for the conversation: what was asked of the model, and its answer.

    Raises `UserError` for what is no item of ours.
    """
    where = f"{param}.encrypted_content"
    content = required(item, "encrypted_content", str, f"{param}.")
    if not content.startswith(PREFIX):
        raise invalid(where, "was not made by this gateway's /v1/responses/compact")
    try:
        kept = orjson.loads(base64.b64decode(content.removeprefix(PREFIX), b"-_", validate=True))
        system, summary = kept["system"], kept["summary"]
    except (KeyError, TypeError, ValueError):
        raise _damaged(where) from None
    if not isinstance(system, list) or not all(isinstance(text, str) for text in system):
        raise _damaged(where)
    if not isinstance(summary, str):
        raise _damaged(where)
    return (
        *(Message("system", text) for text in system),
        Message("user", ASK),
        Message("assistant", summary),
    )


def _damaged(where: str) -> UserError:
    return invalid(where, "is damaged: pass the item back as it came")
