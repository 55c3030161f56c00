"""The graphs for trees of an engine's target: loaded and probed when they are wanted."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from gateway.engine.background import BackgroundLoads
from gateway.engine.closing import closing, outcome_of
from gateway.engine.service import ModelService
from gateway.engine.worker import on_device
from models.probe import ProbeResult, probe_trees
from models.target import Target

log = logging.getLogger(__name__)


class TreeGraphs:
    """Lives on the engine's event loop. `found` is told what probing found."""

    def __init__(
        self,
        target: Target,
        service: ModelService,
        loads: BackgroundLoads,
        vocab_size: int,
        found: Callable[[ProbeResult], None],
    ) -> None:
        self._target = target
        self._service = service
        self._loads = loads
        self._vocab_size = vocab_size
        self._found = found
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    async def load(self) -> None:
        """Have them loaded and probed, once; other requests go on meanwhile.

        Raises `UserError`: `out_of_memory`, after which the next request tries again,
        `device_error` where a load hangs, and `draining`.
        """
        if self._closed:
            raise closing()
        if self._task is None:
            self._task = asyncio.create_task(self._load(), name="trees")
            self._task.add_done_callback(self._ended)
        await outcome_of(self._task)

    def close(self) -> None:
        """Give up what is being loaded; whoever waits for it is told so."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()

    async def _load(self) -> None:
        log.info("loading the graphs for trees")
        await self._loads("the graphs for trees", self._target.load_trees)
        steps = probe_trees(self._target, self._vocab_size)
        step = on_device(lambda: next(steps, None))
        while (result := await self._service.turn(step)) is not None:
            self._found(result)
        log.info("loaded the graphs for trees")

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or task.exception() is not None:
            self._task = None
