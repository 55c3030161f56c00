"""Graphs that are loaded while answers run: on a thread that yields to them, and not for ever."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable

from gateway.engine.worker import Worker
from models.errors import UserError

log = logging.getLogger(__name__)

LOAD_SECONDS = 600.0
"""What one load may take: as long as a step of a package's."""

_LEAST_PRIORITY = 19


class BackgroundLoads:
    """Loads that belong together: where one hangs the next would wait for it, and leave one thread
    more.

    Lives on an event loop. Who waits for one that takes more than `seconds` is told so, and from
    then on there is none until it came back: what hangs cannot be ended.
    """

    def __init__(self, seconds: float = LOAD_SECONDS) -> None:
        self._seconds = seconds
        self.hanging = ""
        """What was given up and did not come back."""

    async def __call__(self, what: str, load: Callable[..., None], *arguments: object) -> None:
        """Call `load`. Raises what it does, and `UserError` (`device_error`) where it hangs."""
        if self.hanging:
            raise UserError(
                f"the last attempt to load {self.hanging} still hangs: load the package anew, or"
                " start the gateway again.",
                code="device_error",
            )
        # A thread of its own, which no end of the process waits for.
        worker = Worker("background")
        loading = worker.submit(_yielding, load, *arguments)
        worker.leave()
        try:
            await asyncio.wait([loading], timeout=self._seconds)
        except asyncio.CancelledError:
            loading.cancel()
            raise
        if loading.done():
            loading.result()
            return
        self.hanging = what
        loading.add_done_callback(self._came_back)
        raise UserError(
            f"loading {what} does not get on: it was given up after {self._seconds:g} s.",
            code="device_error",
        )

    def _came_back(self, loading: asyncio.Future[None]) -> None:
        log.warning("the attempt to load %s that hung came back", self.hanging)
        self.hanging = ""
        if not loading.cancelled():
            loading.exception()  # heard: nobody waits any more


def _yielding(load: Callable[..., None], *arguments: object) -> None:
    """`load` with what others leave of the processors: running streams come first."""
    # On Linux a thread has a priority of its own.
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LEAST_PRIORITY)
    load(*arguments)
