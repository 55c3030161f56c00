"""The watchdog: fed while the device worker makes progress or has nothing to do."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Mapping

log = logging.getLogger(__name__)

RunningFor = Callable[[float], float | None]
"""Seconds since the run began that goes on at this time of `time.monotonic`; None: nothing runs."""

_TICKS = 4
_PATIENCE = 2


def watchdog_seconds(environment: Mapping[str, str], pid: int | None = None) -> float | None:
    """The time within which the service manager wants to hear of us; None: it does not care."""
    told = environment.get("WATCHDOG_USEC", "")
    whose = environment.get("WATCHDOG_PID", "")
    if whose and whose != str(os.getpid() if pid is None else pid):
        return None
    if not (told.isascii() and told.isdigit()) or int(told) == 0:
        return None
    return int(told) / 1e6


def earliest_end(seconds: float) -> float:
    """How long a run that hangs goes on at least before a watchdog of `seconds` ends it: it was fed
    up to a tick before the limit."""
    return seconds * (1 + 1 / _PATIENCE - 1 / _TICKS)


def latest_end(seconds: float) -> float:
    """The same, at most."""
    return seconds * (1 + 1 / _PATIENCE)


class Watchdog:
    """Calls `feed` four times within `seconds`, but not while a run goes on for more than half of
    them.

    So a run that ends within `seconds` never costs the gateway, and one that does not ends it
    after one and a half times that at the latest. It lives on the event loop: a loop that hangs
    feeds nothing either.
    """

    def __init__(
        self,
        seconds: float,
        feed: Callable[[], None],
        running_for: RunningFor,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.interval = seconds / _TICKS
        self.limit = seconds / _PATIENCE
        self._feed = feed
        self._running_for = running_for
        self._now = now
        self._starved = False

    def tick(self) -> bool:
        """Feed it unless something hangs; whether it was fed."""
        running = self._running_for(self._now())
        stuck = running is not None and running > self.limit
        if stuck and not self._starved:
            log.error("a run has not ended for %.0f s: the watchdog is not fed", running)
        elif self._starved and not stuck:
            log.warning("the run has ended: the watchdog is fed again")
        self._starved = stuck
        if not stuck:
            self._feed()
        return not stuck

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self.tick()
            await asyncio.sleep(self.interval)
