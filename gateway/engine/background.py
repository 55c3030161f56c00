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

CLOSE_SECONDS = 30.0
"""How long closing waits for one: longer than a gateway that ends waits for its engines, so that it
leaves beside a load that goes on, and no longer than a package can be without that waits for it to
be loaded again."""

_LEAST_PRIORITY = 19


class BackgroundLoads:
    """The loads of one engine, one after the other: they would wait for each other anyway.

    Lives on an event loop. From `limit` on whoever waits for one that takes too long is told so,
    and there is none any more until that came back: what hangs cannot be ended, and each attempt
    would leave one thread more. While the engine starts its own start is given up instead.
    """

    def __init__(self) -> None:
        self._seconds: float | None = None
        self._turn = asyncio.Lock()
        self._running: asyncio.Future[None] | None = None
        self._hanging = ""

    def limit(self, seconds: float = LOAD_SECONDS) -> None:
        """What each load from now on may take."""
        self._seconds = seconds

    async def __call__(self, what: str, load: Callable[..., None], *arguments: object) -> None:
        """Call `load`. Raises what it does, and `UserError` (`device_error`) where it hangs, or one
        before it."""
        async with self._turn:
            if self._hanging:
                raise UserError(
                    f"the last attempt to load {self._hanging} still hangs: nothing more is loaded"
                    " before it comes back, or the gateway is started again.",
                    code="device_error",
                )
            await self._load(what, load, *arguments)

    async def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Wait for what is being loaded: nothing ends it, and an interpreter that ends beside it is
        aborted. For one that hangs no longer than `seconds`: the engine is to make room."""
        if self._running is not None:
            await asyncio.wait([self._running], timeout=seconds)

    async def _load(self, what: str, load: Callable[..., None], *arguments: object) -> None:
        worker = Worker("background")
        self._running = loading = worker.submit(_yielding, load, *arguments)
        worker.leave()
        loading.add_done_callback(self._came_back)
        # Who is cancelled here, by closing alone, leaves it running.
        await asyncio.wait([loading], timeout=self._seconds)
        if loading.done():
            loading.result()
            return
        self._hanging = what
        log.error("loading %s does not get on; it is given up", what)
        raise UserError(
            f"loading {what} does not get on: it was given up after {self._seconds:g} s.",
            code="device_error",
        )

    def _came_back(self, loading: asyncio.Future[None]) -> None:
        loading.exception()  # heard, also where nobody waits any more
        self._running = None
        if self._hanging:
            log.warning("the attempt to load %s that hung came back", self._hanging)
            self._hanging = ""


def _yielding(load: Callable[..., None], *arguments: object) -> None:
    """`load` with what others leave of the processors: running streams come first."""
    # On Linux a thread has a priority of its own.
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LEAST_PRIORITY)
    load(*arguments)
