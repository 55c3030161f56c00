"""Counts how often a whole row of logits is looked at, from outside the engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gateway.engine.policies.offers import NOTHING, Offer
from gateway.engine.service import ModelService, Result
from gateway.engine.waiting import Drafted, Verified
from models.draft import Draft
from models.slots import Slot
from models.target import Row
from models.workspace import Window


@dataclass(slots=True, eq=False)
class _CountedWindow(Window):
    note: Callable[[], None]

    def whole(self, index: int) -> NDArray[np.float32]:
        self.note()
        return Window.whole(self, index)


class CountingService(ModelService):
    """Stands in front of an engine's service. `whole_rows` counts."""

    def __init__(self, inner: ModelService) -> None:
        self._inner = inner
        self.whole_rows = 0

    @property
    def closed(self) -> bool:
        return self._inner.closed

    @property
    def overlaps(self) -> bool:
        return self._inner.overlaps

    @property
    def idle(self) -> bool:
        """Never: rounds that are made alone would not come past here."""
        return False

    def tell(self, function: Callable[..., None], *arguments: Any) -> None:
        self._inner.tell(function, *arguments)

    async def draft(self, slot: Slot, propose: Callable[[], Draft]) -> Drafted:
        return await self._inner.draft(slot, propose)

    def drafting(self, slot: Slot) -> asyncio.Future[Any] | None:
        return self._inner.drafting(slot)

    async def decode(self, slot: Slot, token: int, offer: Offer = NOTHING) -> Verified:
        return self._counted(await self._inner.decode(slot, token, offer))

    async def prefill(self, row: Row, order: int) -> Verified:
        return self._counted(await self._inner.prefill(row, order))

    async def turn(self, function: Callable[[], Result]) -> Result:
        return await self._inner.turn(function)

    def call(self, function: Callable[[], Result]) -> asyncio.Future[Result]:
        return self._inner.call(function)

    async def close(self) -> None:
        await self._inner.close()

    def _counted(self, verified: Verified) -> Verified:
        window = verified.result.window
        assert window is not None, "results of a run show whole rows"
        counted = _CountedWindow(window.workspace, window.run, window.start, self._note)
        result = verified.result._replace(window=counted)
        return verified._replace(result=result)

    def _note(self) -> None:
        self.whole_rows += 1
