"""Requests to the completions routes over plain HTTP, and what is read of the events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import aiohttp
import orjson

from tests.http_serving import Served

MESSAGES: list[Any] = [{"role": "user", "content": "Hi"}]
PROMPT = "<user>Hi</><assistant>"


async def post(
    served: Served, status: int = 200, path: str = "chat/completions", **fields: Any
) -> Any:
    body = fields if path == "completions" else {"messages": MESSAGES, **fields}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{served.base}/{path}", json=body) as response,
    ):
        assert response.status == status, await response.text()
        return await response.json()


async def stream(served: Served, path: str = "chat/completions", **fields: Any) -> list[Any]:
    """The decoded events, `[DONE]` as it is."""
    body = fields if path == "completions" else {"messages": MESSAGES, **fields}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{served.base}/{path}", json={**body, "stream": True}) as response,
    ):
        assert response.status == 200, await response.text()
        assert response.content_type == "text/event-stream"
        blocks = (await response.text()).removesuffix("\n\n").split("\n\n")
    data = [block.removeprefix("data: ") for block in blocks]
    return [line if line == "[DONE]" else orjson.loads(line) for line in data]


def choice_chunks(events: Sequence[Any], index: int = 0) -> list[Any]:
    choices = [choice for event in events if event != "[DONE]" for choice in event["choices"]]
    return [choice for choice in choices if choice["index"] == index]


def content_of(events: Sequence[Any], index: int = 0) -> str:
    return "".join(choice["delta"].get("content", "") for choice in choice_chunks(events, index))
