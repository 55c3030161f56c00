"""The steps of loading: each is said before it begins, and may take so long and no longer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

Say = Callable[[str], None]


class Steps:
    """`seconds` is what a step may take until the next one is said."""

    def __init__(self, say: Say, seconds: float) -> None:
        self._say = say
        self._seconds = seconds
        self._last = ""
        self._begun = time.monotonic()

    @property
    def last(self) -> str:
        """The step that it is at, or came to."""
        return self._last

    def say(self, line: str) -> None:
        """A step begins; from any thread."""
        self._last, self._begun = line, time.monotonic()
        self._say(line)

    async def goes_on(self, work: asyncio.Task[Any]) -> bool:
        """Wait for the end of `work`; False as soon as a step of it takes too long."""
        while not work.done():
            left = self._begun + self._seconds - time.monotonic()
            if left <= 0:
                return False
            await asyncio.wait([work], timeout=left)
        return True
