"""How long tests wait for what must come."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

PATIENCE = 60.0
"""Seconds until a test gives up waiting. Only failures take so long: a busy machine is no failure.
Where less time would prove something, a test says so by what comes first, not by a shorter wait."""

HOLD = 2 * PATIENCE
"""Seconds that a gate is held at most: longer than anybody waits for what is behind it."""


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that other tasks, threads or processes bring about."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 (what is awaited has no event)
            await asyncio.sleep(0.002)
