"""Engines that no request begins on any more: closed and freed when their answers have ended."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable

from gateway.fleet.loaded import Loaded
from models.errors import UserError

log = logging.getLogger(__name__)

GRACE = 5.0
"""Seconds that cut answers have to end."""


class Retiring:
    """Those of one package. `changed` is told when one is gone."""

    def __init__(self, name: str, changed: Callable[[], None]) -> None:
        self._name = name
        self._changed = changed
        self._engines: set[Loaded] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def engines(self) -> tuple[Loaded, ...]:
        return tuple(self._engines)

    def add(self, loaded: Loaded) -> None:
        """It is to be retired by whoever says this."""
        self._engines.add(loaded)

    def retire_soon(self, loaded: Loaded, cut: UserError) -> asyncio.Task[None]:
        """Retire it, however long its answers take."""
        task = asyncio.create_task(self.retire(loaded, None, cut), name=f"{self._name} ends")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def retire(self, loaded: Loaded, seconds: float | None, cut: UserError) -> None:
        """Close `loaded` when its answers have ended; those that have not within `seconds` fail
        with `cut`."""
        if not await loaded.unused(seconds):
            loaded.end(cut)
            await loaded.unused(GRACE)
        await loaded.engine.close()
        self._engines.discard(loaded)
        loaded.forget()
        # An engine's parts know one another; its buffers are what is to be free now.
        await asyncio.to_thread(gc.collect)
        log.info("package %s is unloaded", self._name)
        self._changed()

    async def cancel(self) -> None:
        """Wait for nobody's answers any more."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
