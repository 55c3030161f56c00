"""When a package that nobody uses is unloaded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gateway.fleet.terms import FOREVER


class IdleTimer:
    """Calls `expired` when nobody said for `seconds` that the package is used (negative: never)."""

    def __init__(self, seconds: float, expired: Callable[[], None]) -> None:
        self.seconds = seconds
        self._expired = expired
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Nobody uses it from now on."""
        self.stop()
        if self.seconds > FOREVER:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(0.0, self.seconds), self._expire)

    def stop(self) -> None:
        """Somebody uses it, or nothing is there to be unloaded."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        self._timer = None
        self._expired()
