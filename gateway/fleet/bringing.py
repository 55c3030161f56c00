"""The load of a package, one at a time, for which several may wait."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from gateway.engine.closing import closing


class Bringing:
    """Of the package `name`. Once it is drained nobody waits any more, though a load goes on."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._task: asyncio.Task[None] | None = None
        self._drained: asyncio.Future[None] | None = None
        self.draining = False

    @property
    def active(self) -> bool:
        return self._task is not None

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        assert self._task is None, "one at a time"
        self._task = asyncio.create_task(work, name=f"package {self._name}")
        self._task.add_done_callback(self._ended)

    async def outcome(self) -> None:
        """When the present load has ended. Who is cancelled here does not end what others wait for.

        Raises what it does, and `UserError` `draining` where the gateway closes meanwhile.
        """
        task = self._task
        assert task is not None, "something was begun"
        if self._drained is None:
            self._drained = asyncio.get_running_loop().create_future()
        await asyncio.wait((task, self._drained), return_when=asyncio.FIRST_COMPLETED)
        if not task.done() or task.cancelled():
            raise closing()
        task.result()

    def drain(self) -> None:
        self.draining = True
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    async def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if not task.cancelled():
            task.exception()  # whoever waited was told it
