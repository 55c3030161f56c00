"""Looks whether the device comes back from its runs.

A run that hangs in a driver cannot be ended from within its process. So its answers are failed, and
where it does not come back even then, the process has to end for the service manager to start
another one.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from gateway.fleet.fleet import Fleet

log = logging.getLogger(__name__)

MOST_SECONDS = 1.0
"""Between two looks."""


class Watch:
    """`leave` is called once, with the reason, where a stuck run does not come back."""

    def __init__(
        self,
        fleet: Fleet,
        leave: Callable[[str], None],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fleet = fleet
        self._leave = leave
        self._now = now
        self._left = False

    async def run(self) -> None:
        """Until it is cancelled; at once where no run is stuck, however long it takes."""
        limit = self._fleet.terms.stuck_seconds
        if limit is None:
            return
        while True:
            await asyncio.sleep(min(MOST_SECONDS, limit / 4))
            self.look()

    def look(self) -> None:
        limit, more = self._fleet.terms.stuck_seconds, self._fleet.terms.stuck_exit_seconds
        assert limit is not None, "otherwise nobody looks"
        now = self._now()
        for member in list(self._fleet):
            for loaded in member.engines:
                seconds = loaded.engine.pulse.running_for(now)
                if seconds is None or seconds < limit:
                    continue
                if not loaded.stuck:
                    member.mark_stuck(loaded, seconds)
                elif seconds >= limit + more and not self._left:
                    self._left = True
                    self._leave(
                        f"a run of package {member.name} has not come back for {seconds:.0f} s"
                    )
