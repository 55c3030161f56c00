"""Slots in turn of the keys, which find what they wrote themselves; room counted before anything
starts, moves before whoever relies on them; the end. (Order, cancellation and failures of requests
are tests of the engine and of generations.)"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence

import pytest

from gateway.engine.service import ModelService
from gateway.engine.slot_queue import SlotQueue
from models.errors import UserError
from models.slots import Slot, SlotPool
from tests.engine_support import until
from tests.patience import HOLD

PROMPT = tuple(range(40))


class Moves:
    """Stands for the target: notes moves; they wait while `gate` is closed, and can fail."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.failure: Exception | None = None
        self.made: list[tuple[int, int, tuple[int, ...]]] = []

    def __call__(self, slot: Slot, start: int, path: Sequence[int]) -> None:
        assert self.gate.wait(HOLD), "a test forgot to open the gate"
        if self.failure is not None:
            raise self.failure
        self.made.append((slot.index, start, tuple(path)))


@pytest.fixture
def moves() -> Moves:
    return Moves()


@pytest.fixture
async def service() -> AsyncIterator[ModelService]:
    running = ModelService(lambda rows: [], most_rows=1)
    yield running
    await running.close()


def make_queue(
    service: ModelService,
    moves: Moves,
    slots: int = 1,
    limit: int = 2,
    patience: float | None = None,
) -> SlotQueue:
    pool = SlotPool([Slot(index, 100, ()) for index in range(slots)], can_copy=True)
    return SlotQueue(pool, service, moves, limit, patience)


class TestRoom:
    @pytest.mark.parametrize(
        ("entering", "count", "refused"),
        [
            (0, 4, None),
            (0, 5, "0 requests are running and 0 are waiting; the queue is full. 5 more do not"),
            (2, 2, None),
            (2, 3, "2 requests are running and 0 are waiting; the queue is full. 3 more do not"),
            (3, 1, None),
            (3, 2, "2 requests are running and 1 are waiting"),
            (4, 1, "2 requests are running and 2 are waiting; the queue is full. Try again"),
        ],
    )
    async def test_who_is_entering_counts(
        self, service: ModelService, moves: Moves, entering: int, count: int, refused: str | None
    ) -> None:
        queue = make_queue(service, moves, slots=2, limit=2)
        queue.entering(entering)
        if refused is None:
            queue.require_room(count)
            return
        with pytest.raises(UserError) as error:
            queue.require_room(count)
        assert error.value.code == "queue_full"
        assert error.value.message.startswith(refused)

    async def test_who_waits_counts(self, service: ModelService, moves: Moves) -> None:
        queue = make_queue(service, moves, limit=1)
        lease = await queue.acquire(PROMPT, True)
        queue.require_room(1)
        waiting = asyncio.ensure_future(queue.acquire(PROMPT, True))
        await asyncio.sleep(0)
        assert queue.waiting == 1
        with pytest.raises(UserError, match="1 requests are running and 1 are waiting"):
            queue.require_room(1)
        queue.release(lease.slot)
        assert (await waiting).slot is lease.slot
        queue.require_room(1)


class TestTurns:
    async def test_keys_get_slots_in_turn(self, service: ModelService, moves: Moves) -> None:
        queue = make_queue(service, moves, limit=9)
        lease = await queue.acquire(PROMPT, True, "greedy")
        order: list[str] = []

        async def ask(key: str) -> None:
            slot = (await queue.acquire(PROMPT, True, key)).slot
            order.append(key)
            queue.release(slot)

        async with asyncio.TaskGroup() as group:
            for key in ("greedy", "greedy", "greedy", "modest", "late"):
                group.create_task(ask(key))
            await asyncio.sleep(0)
            assert queue.waiting == 5
            queue.release(lease.slot)
        assert order == ["modest", "late", "greedy", "greedy", "greedy"]

    async def test_who_left_is_passed_over(self, service: ModelService, moves: Moves) -> None:
        queue = make_queue(service, moves, limit=9)
        lease = await queue.acquire(PROMPT, True)
        leaving = asyncio.ensure_future(queue.acquire(PROMPT, True, "a"))
        staying = asyncio.ensure_future(queue.acquire(PROMPT, True, "b"))
        await asyncio.sleep(0)
        leaving.cancel()
        await asyncio.wait([leaving])
        assert queue.waiting == 1
        queue.release(lease.slot)
        assert (await staying).slot is lease.slot

    async def test_waiting_has_an_end(self, service: ModelService, moves: Moves) -> None:
        queue = make_queue(service, moves, patience=0.01)
        lease = await queue.acquire(PROMPT, True)
        with pytest.raises(UserError) as error:
            await queue.acquire(PROMPT, True)
        assert error.value.code == "queue_timeout"
        assert error.value.message.startswith("no slot became free within 0.01 s")
        assert queue.waiting == 0
        # Whoever has a slot is not hurried, and the slot is not lost.
        queue.release(lease.slot)
        assert (await queue.acquire(PROMPT, True)).slot is lease.slot


class TestMoves:
    async def test_a_lease_waits_for_the_move_of_its_slot(
        self, service: ModelService, moves: Moves
    ) -> None:
        queue = make_queue(service, moves)
        slot = (await queue.acquire(PROMPT, True)).slot
        slot.commit(PROMPT)
        moves.gate.clear()
        moved = queue.compact(slot, 30, (0, 2))
        queue.release(slot)
        following = asyncio.ensure_future(queue.acquire((*PROMPT, 7), True))
        await asyncio.sleep(0.01)
        assert not following.done()
        moves.gate.set()
        lease = await following
        assert (lease.shared, moved.done()) == (40, True)
        assert moves.made == [(0, 30, (0, 2))]

    async def test_a_copy_waits_for_the_move_of_its_source(
        self, service: ModelService, moves: Moves
    ) -> None:
        queue = make_queue(service, moves, slots=2)
        source = (await queue.acquire(PROMPT, True)).slot
        source.commit(PROMPT)
        moves.gate.clear()
        moves.failure = RuntimeError("scatter failed")
        queue.compact(source, 30, (1,))
        copying = asyncio.ensure_future(queue.acquire((*PROMPT, 7), True))
        await asyncio.sleep(0)
        moves.gate.set()
        with pytest.raises(RuntimeError, match="scatter failed"):
            await copying
        # Both slots hold only what is certain.
        assert source.length == 30
        moves.failure = None
        again = await queue.acquire((*PROMPT, 7), True)
        assert again.shared == 30

    async def test_a_move_that_failed_is_forgotten_with_what_it_should_have_kept(
        self, service: ModelService, moves: Moves
    ) -> None:
        queue = make_queue(service, moves)
        slot = (await queue.acquire(PROMPT, True)).slot
        slot.commit(PROMPT)
        moves.failure = RuntimeError("scatter failed")
        moved = queue.compact(slot, 33, (1,))
        with pytest.raises(RuntimeError, match="scatter failed"):
            await moved
        await until(lambda: slot.length == 33)
        queue.release(slot)
        lease = await queue.acquire((*PROMPT, 7), True)
        assert lease.shared == 33

    async def test_after_the_end_moves_are_refused(self, moves: Moves) -> None:
        service = ModelService(lambda rows: [], most_rows=1)
        queue = make_queue(service, moves)
        slot = (await queue.acquire(PROMPT, True)).slot
        slot.commit(PROMPT)
        await service.close()
        with pytest.raises(UserError) as error:
            await queue.compact(slot, 33, (1,))
        assert error.value.code == "draining"
        await until(lambda: slot.length == 33)


class TestOwners:
    async def test_a_key_finds_what_it_wrote(self, service: ModelService, moves: Moves) -> None:
        queue = make_queue(service, moves, slots=2)
        for key, shared in (("a", 0), ("b", 0), ("a", 40), ("b", 40), (None, 0)):
            lease = await queue.acquire((*PROMPT, 7), True, key)
            assert lease.shared == shared, key
            lease.slot.commit(PROMPT[lease.shared :])
            queue.release(lease.slot)

    async def test_who_waited_finds_no_more(self, service: ModelService, moves: Moves) -> None:
        queue = make_queue(service, moves, limit=3)
        lease = await queue.acquire(PROMPT, True, "a")
        lease.slot.commit(PROMPT)
        waiting = [asyncio.ensure_future(queue.acquire((*PROMPT, 7), True, key)) for key in "bcc"]
        await asyncio.sleep(0)
        for each, shared in zip(waiting, (0, 0, 40), strict=True):
            queue.release(lease.slot)
            lease = await each
            assert lease.shared == shared
            lease.slot.commit(PROMPT[shared:])


class TestClosing:
    async def test_who_waits_is_told_though_no_slot_comes_back(
        self, service: ModelService, moves: Moves
    ) -> None:
        queue = make_queue(service, moves, limit=3)
        lease = await queue.acquire(PROMPT, True)
        waiting = [asyncio.ensure_future(queue.acquire(PROMPT, True, key)) for key in "aab"]
        await asyncio.sleep(0)
        waiting[0].cancel()
        queue.close()
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert isinstance(results[0], asyncio.CancelledError)
        assert [getattr(result, "code", result) for result in results[1:]] == ["draining"] * 2
        assert queue.waiting == 0
        queue.release(lease.slot)
        with pytest.raises(UserError) as error:
            await queue.acquire(PROMPT, True)
        assert error.value.code == "draining"

    async def test_who_was_given_a_slot_gives_it_back(
        self, service: ModelService, moves: Moves
    ) -> None:
        """Closed between the release of a slot and whoever waited for it."""
        queue = make_queue(service, moves)
        lease = await queue.acquire(PROMPT, True)
        waiting = asyncio.ensure_future(queue.acquire(PROMPT, True))
        await asyncio.sleep(0)
        queue.release(lease.slot)
        queue.close()
        assert (await waiting).slot is lease.slot
        queue.release(lease.slot)
