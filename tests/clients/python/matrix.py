"""What the scripts of the matrix have in common: cells, what is asked for, what is looked at.

A script is called with BASE MODEL KEY FULL and prints {"cells": {feature: {way: what it got}}}; a
way is a letter of the table in tests/test_clients_matrix.py. What a client says is
"{feature} {way}", so that the request is found again.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import time
import traceback
import urllib.request
from collections.abc import Awaitable, Callable
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

TOKENS = 24
TOP = 2
DESCRIPTION = "The weather in a town."
SLOWLY = "slowly"
WET = "It is wet."


class Weather(BaseModel):
    """What a function is called with, and what an answer is to be."""

    model_config = ConfigDict(extra="forbid")
    town: Literal["Bonn", "Oslo"]
    days: int = Field(ge=0, le=9)


WEATHER: dict[str, Any] = Weather.model_json_schema()
FUNCTION: dict[str, Any] = {
    "name": "get_weather",
    "description": DESCRIPTION,
    "parameters": WEATHER,
}
FLAT_TOOL: dict[str, Any] = {"type": "function", **FUNCTION, "strict": True}
CHAT_TOOL: dict[str, Any] = {"type": "function", "function": FUNCTION}

Feature = Callable[[], Awaitable[Any] | Any]


async def settled(found: Any) -> Any:
    """Of a client that blocks what it gave, of one that does not what it gives in the end."""
    return await found if inspect.isawaitable(found) else found


async def gathered(stream: Any) -> list[Any]:
    """All of a stream of either kind."""
    stream = await settled(stream)
    if hasattr(stream, "__aiter__"):
        return [event async for event in stream]
    return list(stream)


async def cells_of(features: dict[str, Feature]) -> dict[str, Any]:
    """Each feature by itself: where one breaks the others are told all the same."""
    cells: dict[str, Any] = {}
    for name, feature in features.items():
        try:
            cells[name] = await settled(feature())
        except Exception:
            cells[name] = {"broken": traceback.format_exc()}
    return cells


async def freed(base: str, key: str) -> bool:
    """Whether soon nothing runs any more, while this program and its tasks live on."""
    return await asyncio.to_thread(_freed, base, key)


def _freed(base: str, key: str) -> bool:
    asked = urllib.request.Request(f"{base}/status", headers={"Authorization": f"Bearer {key}"})
    until = time.monotonic() + 5
    while time.monotonic() < until:
        with urllib.request.urlopen(asked, timeout=5) as answer:
            if json.load(answer)["running"] == 0:
                return True
        time.sleep(0.02)
    return False


async def failure(work: Callable[[], Any]) -> dict[str, Any]:
    """The error that it ends with, as its client tells it."""
    try:
        await settled(work())
    except Exception as error:
        return {
            "kinds": [kind.__name__ for kind in type(error).__mro__],
            "code": getattr(error, "code", None),
            "message": str(error),
        }
    return {"kinds": [], "code": None, "message": "nothing failed"}


def report(cells: dict[str, Any], **more: Any) -> None:
    print(json.dumps({"cells": cells, **more}))


def run(cells: Awaitable[dict[str, Any]], **more: Any) -> None:
    async def awaited() -> dict[str, Any]:
        return await cells

    report(asyncio.run(awaited()), **more)
