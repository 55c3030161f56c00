"""What waits for a run or a job of the models, what it is answered, and the threads that do it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from models.draft import Draft
from models.slots import Slot
from models.target import Row, RowResult


@dataclass(frozen=True, slots=True)
class Verified:
    """A row's result, how long its run took, and how wide the run was.

    `run_ms` is the whole run's time; `tokens` and `rows` count everything packed into it, `tree`
    says whether a tree was among it.
    """

    result: RowResult
    run_ms: float
    tokens: int
    rows: int
    tree: bool


class Drafted(NamedTuple):
    """A draft and how long its own run took."""

    draft: Draft
    run_ms: float


@dataclass(slots=True, eq=False)
class WaitingRow:
    row: Row
    order: int
    future: asyncio.Future[Verified] = field(repr=False)


@dataclass(slots=True, eq=False)
class WaitingDraft:
    slot: Slot
    propose: Callable[[], Draft]
    future: asyncio.Future[Drafted] = field(repr=False)


@dataclass(slots=True, eq=False)
class WaitingTurn:
    function: Callable[[], Any]
    future: asyncio.Future[Any] = field(repr=False)


Waiting = WaitingRow | WaitingDraft | WaitingTurn


class Lane:
    """A worker thread and whether something has been put on it that has not ended."""

    def __init__(self, name: str) -> None:
        self.worker = ThreadPoolExecutor(1, thread_name_prefix=name)
        self.busy = False
