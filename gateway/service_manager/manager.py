"""What the service manager is told of a gateway's life."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager

from gateway.service_manager.notify import Notifier
from gateway.service_manager.watchdog import RunningFor, Watchdog, watchdog_seconds

STEP_SECONDS = 600.0
"""What a step of loading may take until the next is told of; then the start has failed."""

STOP_MARGIN = 30.0
"""Seconds behind the drain's deadline in which what runs on the device ends, and the process."""


class ServiceManager:
    """Without one (`notifier` heard by nobody, `watchdog` None) all of this does nothing.

    `watchdog` is in seconds.
    """

    def __init__(self, notifier: Notifier, watchdog: float | None = None) -> None:
        self.notifier = notifier
        self.watchdog = watchdog
        self._ready: str | None = None

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> ServiceManager:
        return cls(Notifier.of(environment), watchdog_seconds(environment))

    def loading(self, line: str) -> None:
        """A step of loading begins: time is asked for as long as one follows the other."""
        self.notifier.status(line, extend=STEP_SECONDS)

    def ready(self, line: str) -> None:
        self._ready = line
        self.notifier.ready(line)

    @contextmanager
    def reloading(self) -> Iterator[None]:
        """Settings are read again in the block. While the model loads nobody is told: `READY=1`
        would say that this has ended."""
        if self._ready is None:
            yield
            return
        self.notifier.reloading()
        try:
            yield
        finally:
            # Not where it was told to stop meanwhile.
            if self._ready is not None:
                self.notifier.ready(self._ready)

    def stopping(self, running: int, seconds: float) -> None:
        """`running` answers may go on for so long."""
        self._ready = None
        answers = f"{running} answer{'' if running == 1 else 's'}"
        self.notifier.stopping(
            f"draining: {answers} running, {seconds:g} s at most", extend=seconds + STOP_MARGIN
        )

    @asynccontextmanager
    async def watching(self, running_for: RunningFor) -> AsyncIterator[None]:
        """The watchdog is fed within the block; `running_for` says how long the run that goes on
        has taken."""
        if self.watchdog is None or not self.notifier.heard:
            yield
            return
        watchdog = Watchdog(self.watchdog, self.notifier.alive, running_for)
        task = asyncio.create_task(watchdog.run(), name="watchdog")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])
