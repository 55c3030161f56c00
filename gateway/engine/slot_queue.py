"""Who gets a slot, and when its K/V is in place."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from gateway.engine.closing import closing, outcome_of
from gateway.engine.service import ModelService
from gateway.engine.turns import Turns
from models.errors import UserError
from models.slots import Lease, Slot, SlotPool

Compact = Callable[[Slot, int, Sequence[int]], None]


@dataclass(frozen=True, slots=True, eq=False)
class _Waiter:
    """A request without a slot; its future gets the lease, and when its K/V is in place."""

    prompt: Sequence[int]
    reuse_prefix: bool
    key: str | None
    future: asyncio.Future[tuple[Lease, asyncio.Future[Any]]]


class SlotQueue:
    """Hands out the slots of a pool: to the keys that wait in turn, within one in order of arrival.

    At most `limit` requests wait, each for `patience` seconds at most.
    """

    def __init__(
        self,
        pool: SlotPool,
        service: ModelService,
        compact: Compact,
        limit: int,
        patience: float | None = None,
    ) -> None:
        self._pool = pool
        self._service = service
        self._compact = compact
        self._limit = limit
        self._patience = patience
        self._waiters: Turns[_Waiter] = Turns()
        self._entering = 0
        self._closed = False
        self._moves: dict[Slot, asyncio.Future[None]] = {}

    @property
    def waiting(self) -> int:
        return len(self._waiters)

    def entering(self, change: int) -> None:
        """Generations that were entered and have not asked for their slot yet."""
        self._entering += change

    def require_room(self, count: int) -> None:
        """Raises `UserError` (`queue_full`) where `count` more requests find no place.

        Requests that arrive in one step of the loop see each other.
        """
        waiting = len(self._waiters) + max(0, self._entering - self._pool.free)
        free = max(0, self._pool.free - self._entering)
        if waiting + count - free <= self._limit:
            return
        asked = "" if count == 1 else f" {count} more do not fit into {self._limit + free} places."
        raise UserError(
            f"{self._pool.total - free} requests are running and {waiting} are waiting;"
            f" the queue is full.{asked} Try again shortly.",
            code="queue_full",
        )

    async def acquire(
        self, prompt: Sequence[int], reuse_prefix: bool, key: str | None = None
    ) -> Lease:
        """A slot for `prompt` when it is the turn of `key`, the K/V that it shares with what the
        same key wrote in place.

        Raises `UserError` (`queue_full`, `queue_timeout`, `draining`).
        """
        if self._closed:
            raise closing()
        lease = None if self._waiters else self._pool.acquire(prompt, reuse_prefix, key)
        if lease is not None:
            self._waiters.served(key)
            return await self._until_filled(lease, self._fill(lease))
        try:
            async with asyncio.timeout(self._patience):
                lease, filled = await self._wait(prompt, reuse_prefix, key)
        except TimeoutError:
            raise UserError(
                f"no slot became free within {self._patience:g} s. Try again later.",
                code="queue_timeout",
            ) from None
        return await self._until_filled(lease, filled)

    def close(self) -> None:
        """Nobody is given a slot any more; whoever waits for one is told so."""
        self._closed = True
        while self._waiters:
            future = self._waiters.pop().future
            if not future.done():
                future.set_exception(closing())

    def release(self, slot: Slot) -> None:
        """Take `slot` back and hand it to whose turn it is.

        A draft of a cancelled request that still runs reads the slot's state: it ends first.
        """
        drafting = self._service.drafting(slot)
        if drafting is not None:
            drafting.add_done_callback(lambda _: self._release(slot))
        else:
            self._release(slot)

    def _release(self, slot: Slot) -> None:
        self._pool.release(slot)
        while self._waiters:
            waiter = self._waiters.pop()
            if waiter.future.done():
                continue
            lease = self._pool.acquire(waiter.prompt, waiter.reuse_prefix, waiter.key)
            assert lease is not None, "a slot was released just now"
            self._waiters.served(waiter.key)
            # The copy is queued here, before anybody can be given its source to write to.
            waiter.future.set_result((lease, self._fill(lease)))
            return

    def compact(self, slot: Slot, start: int, path: Sequence[int]) -> asyncio.Future[None]:
        """Queue the move of an accepted path's K/V, before any later run; see `Target.compact`.

        Where it fails the slot forgets what it should have moved, and whoever has a lease on it
        fails.
        """
        moved = self._service.call(partial(self._compact, slot, start, path))
        self._moves[slot] = moved
        moved.add_done_callback(partial(self._note_moved, slot, start))
        return moved

    def _note_moved(self, slot: Slot, start: int, moved: asyncio.Future[None]) -> None:
        if self._moves.get(slot) is moved:
            del self._moves[slot]
        if moved.cancelled() or moved.exception() is not None:
            slot.truncate(min(slot.length, start))

    async def _wait(
        self, prompt: Sequence[int], reuse_prefix: bool, key: str | None
    ) -> tuple[Lease, asyncio.Future[Any]]:
        self.require_room(1)
        future: asyncio.Future[tuple[Lease, asyncio.Future[Any]]]
        future = asyncio.get_running_loop().create_future()
        waiter = _Waiter(prompt, reuse_prefix, key, future)
        self._waiters.add(key, waiter)
        try:
            return await future
        except asyncio.CancelledError:
            if not self._waiters.remove(key, waiter) and future.done() and not future.cancelled():
                self.release(future.result()[0].slot)
            raise

    async def _until_filled(self, lease: Lease, filled: asyncio.Future[Any]) -> Lease:
        try:
            # The slot counts the copied tokens already, so a cancelled request's copy goes on.
            await outcome_of(filled)
        except BaseException as error:
            if not isinstance(error, asyncio.CancelledError):
                lease.slot.truncate(0)
            self.release(lease.slot)
            raise
        return lease

    def _fill(self, lease: Lease) -> asyncio.Future[Any]:
        """What must be done before the lease's K/V can be relied on."""
        slots = (lease.slot, lease.source)
        pending = [self._moves[slot] for slot in slots if slot is not None and slot in self._moves]
        if lease.source is not None:
            pending.append(self._service.call(lease.fill))
        return asyncio.gather(*pending)
