"""`/v1/responses/compact`: the model sums a conversation up, for it to go on with less to read.

The summary is an answer like any other, made by the served model from the whole conversation; it
is as good as that model is at summing up.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiohttp import web

from gateway.engine.conversation import Message
from gateway.http.access import BODY_DEADLINE, read_body
from gateway.http.fields import decode_object, missing, optional, required
from gateway.http.gateway import Gateway
from gateway.http.guard import json_response, owner_of
from gateway.http.responses.compaction import ASK, compaction_item
from gateway.http.responses.items import parse_input
from gateway.http.responses.schema import parse_create
from gateway.http.responses.store import Conversations
from models.errors import UserError

SUMMARY_TOKENS = 512
PENALTY = 0.1
"""For tokens of the summary that come again: without it a small model may repeat itself to the
limit. Not the advice of its package, whose repetition penalty counts the prompt as well: what is to
be kept is there, and a summary says it again."""


class CompactRoutes:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def add_to(self, router: web.UrlDispatcher) -> None:
        router.add_post("/v1/responses/compact", self.compact)

    async def compact(self, request: web.Request) -> web.Response:
        body = await read_body(request, BODY_DEADLINE)
        document = decode_object(body, self._gateway.limits.nesting)
        owner = owner_of(request)
        wanted = parse_create(_asking(document), self._gateway.settings, owner)
        conversations = Conversations(self._gateway.turns, lanes=0, owner=owner)
        system = _system_messages(document, conversations)
        answer = await self._gateway.answer(wanted, conversations)
        async with self._gateway.streaming(answer) as entries:
            async for _ in entries:
                pass
        return json_response(_compacted(answer.snapshot(), system))


def _asking(document: Mapping[str, Any]) -> dict[str, Any]:
    """The request of the summary: the conversation, and what is asked of the model then."""
    return {
        "model": required(document, "model", str),
        "input": [*_items(document), {"role": "user", "content": ASK}],
        "instructions": document.get("instructions"),
        "previous_response_id": document.get("previous_response_id"),
        "prompt_cache_key": document.get("prompt_cache_key"),
        "max_output_tokens": SUMMARY_TOKENS,
        "temperature": 0,
        "frequency_penalty": PENALTY,
        "store": False,
    }


def _items(document: Mapping[str, Any]) -> list[Any]:
    given = document.get("input")
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    if given is None or given == []:
        if document.get("previous_response_id") is None:
            raise missing("input")
        return []
    return optional(document, "input", list) or []


def _system_messages(document: Mapping[str, Any], conversations: Conversations) -> list[str]:
    messages: list[Message] = []
    previous = optional(document, "previous_response_id", str)
    if previous is not None:
        messages += conversations.find(previous).messages
    if items := _items(document):
        messages += parse_input({"input": items})
    return [message.content for message in messages if message.role == "system"]


def _compacted(response: Mapping[str, Any], system: list[str]) -> dict[str, Any]:
    """Raises `UserError` where there is no summary."""
    summary = "".join(
        part["text"]
        for item in response["output"]
        if item["type"] == "message"
        for part in item["content"]
    ).strip()
    if response["status"] == "cancelled":
        raise UserError("The gateway is shutting down: the summary was cut.", code="draining")
    if response["status"] == "failed":
        raise UserError(response["error"]["message"], code="server_error")
    if not summary:
        raise UserError("The model summed the conversation up in no words.", code="server_error")
    return {
        "id": response["id"],
        "object": "response.compaction",
        "created_at": response["created_at"],
        "output": [compaction_item(system, summary)],
        "usage": response["usage"],
    }
