"""What waits for a run or a job of the models, what it is answered, and the threads that do it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from gateway.engine.costs.shape import RunShape
from gateway.engine.device_turns import DeviceTurns
from gateway.engine.policies.offers import Offer, make_row
from gateway.engine.pulse import Pulse
from gateway.engine.worker import Worker
from models.draft import EMPTY, Draft
from models.slots import Slot
from models.target import Row, RowResult


class Recallable(Protocol):
    """What may be called back before it has begun."""

    @property
    def wanted(self) -> bool: ...


class Verified(NamedTuple):
    """A row's result, the time of the whole run, and the shape of everything packed into it.

    `draft` is what the run verified of what was offered.
    """

    result: RowResult
    run_ms: float
    shape: RunShape
    draft: Draft = EMPTY


class Drafted(NamedTuple):
    """A draft and how long its own run took."""

    draft: Draft
    run_ms: float


@dataclass(slots=True, eq=False)
class RunRow:
    """A chunk of a prompt where nothing was offered; else all of `offer`, until the run takes a
    part of it."""

    row: Row
    offer: Offer | None
    draft: Draft

    @property
    def shape(self) -> RunShape:
        """Of a run of this row alone."""
        row = self.row
        return RunShape.of([(row.past, len(row.tokens))], tree=row.parents is not None)

    def take(self, count: int) -> None:
        """Verify the first `count` tokens of the offer."""
        assert self.offer is not None, "a chunk is run whole"
        if count < len(self.offer.order):
            self.draft = self.offer.first(count)
            self.row = make_row(self.row.slot, self.row.tokens[0], self.draft)


@dataclass(slots=True, eq=False)
class WaitingRow(RunRow):
    order: int
    future: asyncio.Future[Verified] = field(repr=False)


@dataclass(slots=True, eq=False)
class WaitingDraft:
    slot: Slot
    propose: Callable[[], Draft]
    future: asyncio.Future[Drafted] = field(repr=False)


@dataclass(slots=True, eq=False)
class WaitingTurn:
    """`done` is the job on the worker, from when it begins. `solo` is what a stream makes rounds
    with there, as many as it may."""

    function: Callable[[], Any]
    future: asyncio.Future[Any] = field(repr=False)
    done: asyncio.Future[Any] | None = field(default=None, repr=False)
    solo: Recallable | None = field(default=None, repr=False)


Waiting = WaitingRow | WaitingDraft | WaitingTurn


class DeviceLane:
    """A worker thread and whether something has been put on it that has not ended.

    `pulse` has the time of what it does, which takes its turn in `turns`.
    """

    def __init__(self, worker: Worker, pulse: Pulse, turns: DeviceTurns) -> None:
        worker.attend(pulse, turns)
        self.worker = worker
        self.busy = False
