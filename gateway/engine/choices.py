"""The prompt that several answers share."""

from __future__ import annotations

import asyncio

from gateway.engine.requests import PromptScored


class SharedPrompt:
    """Prefilled by the first of several choices for all of them.

    `settle` is called when its K/V is in a slot, and again when the first choice ends, however it
    ends: nobody waits for one that failed or left.
    """

    def __init__(self) -> None:
        self._settled = asyncio.Event()
        self._scored: PromptScored | None = None

    def settle(self, scored: PromptScored | None = None) -> None:
        """`scored` are the prompt's log-probabilities, where they were asked for and came."""
        if not self._settled.is_set():
            self._scored = scored
            self._settled.set()

    async def wait(self) -> PromptScored | None:
        await self._settled.wait()
        return self._scored
