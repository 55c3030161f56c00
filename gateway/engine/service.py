"""The models as a service: callers await rows and drafts, a worker thread runs what waits."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from gateway.engine.batches import offered, share, timed_drafts
from gateway.engine.closing import closing
from gateway.engine.costs.run_costs import RunCosts
from gateway.engine.costs.shape import RunShape
from gateway.engine.device_turns import DeviceTurns
from gateway.engine.policies.offers import NOTHING, Offer
from gateway.engine.pulse import Pulse
from gateway.engine.solo import Relay, Solo
from gateway.engine.waiting import (
    DeviceLane,
    Drafted,
    Verified,
    Waiting,
    WaitingDraft,
    WaitingRow,
    WaitingTurn,
)
from gateway.engine.worker import Worker
from models.draft import Draft
from models.slots import Slot
from models.target import Row, RowResult

__all__ = ["Drafted", "ModelService", "Result", "Verified"]

Result = TypeVar("Result")
Run = Callable[[Sequence[Row]], list[RowResult]]


class ModelService:
    """Packs waiting rows into runs of the target, and waiting drafts into jobs of the drafters.

    Decode rows go first; one waiting prefill chunk rides along in every run, so that a prompt is
    never starved and streams wait for one chunk at most. A run starts when the event loop has
    resumed everybody whom the last run or job answered: requests that decode together stay
    together. What else runs the target takes a `turn` in a run's place. Drafts that wait together
    are one job, answered when all are done, and go before target runs, but not twice in a row past
    a decode row that waits: so neither a first draft nor a chunk starts a run that the others' rows
    miss. With `overlap` (a device of its own) drafts have a thread of their own; a chunk alone then
    still waits for the rows that drafts precede. A stream that nobody else waits beside may have
    its rounds made on the target's thread (`alone`). With `apart` chunks run alone, in turns with
    decode rows: beside a chunk a run is of no shape that a device has captured. `worker` is the
    thread of the target's runs, where it was loaded on one.
    """

    def __init__(
        self,
        run: Run,
        most_rows: int,
        *,
        overlap: bool = False,
        apart: bool = False,
        costs: RunCosts | None = None,
        pulse: Pulse | None = None,
        turns: DeviceTurns | None = None,
        worker: Worker | None = None,
    ) -> None:
        self._apart = apart
        self._run = run
        self._costs = costs
        self._most_rows = most_rows
        self._decodes: deque[WaitingRow] = deque()
        self._prefills: deque[WaitingRow] = deque()
        self._drafts: deque[WaitingDraft] = deque()
        self._turns: deque[WaitingTurn] = deque()
        self._drafting: dict[Slot, asyncio.Future[Any]] = {}
        self._prefill_turn = False
        self._drafted_last = False
        self._solo: Solo | None = None
        self._pulse, self._device_turns = pulse or Pulse(), turns or DeviceTurns()
        self._target = DeviceLane(worker or Worker("target"), self._pulse, self._device_turns)
        self._drafter = self._target
        if overlap:
            self._drafter = DeviceLane(Worker("drafter"), self._pulse, self._device_turns)
        self._closed = False

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def overlaps(self) -> bool:
        """Whether drafts run beside the target, and not in the order in which they were queued."""
        return self._drafter is not self._target

    @property
    def waiting_prefills(self) -> int:
        """Prompts with a chunk that is in no run yet."""
        return len(self._prefills)

    async def decode(self, slot: Slot, token: int, offer: Offer = NOTHING) -> Verified:
        """Run `token`, the last committed one, and verify what of `offer` pays for all rows of the
        run together."""
        item = offered(slot, token, offer)
        future: asyncio.Future[Verified] = asyncio.get_running_loop().create_future()
        waiting = WaitingRow(item.row, offer, item.draft, 0, future)
        return await self._submit_row(self._decodes, waiting)

    async def prefill(self, row: Row, order: int) -> Verified:
        """Run a chunk of a prompt. The prompt of lowest `order` is prefilled first."""
        future: asyncio.Future[Verified] = asyncio.get_running_loop().create_future()
        return await self._submit_row(self._prefills, WaitingRow(row, None, Draft(), order, future))

    async def draft(self, slot: Slot, propose: Callable[[], Draft]) -> Drafted:
        """Have `propose`, which runs a graph on the state of `slot`, called on a worker thread.

        Raises what it raises, and nobody else's draft is touched by that. Where the caller is
        cancelled a draft that runs goes on: see `drafting`.
        """
        self._require_open()
        waiting = WaitingDraft(slot, propose, asyncio.get_running_loop().create_future())
        self._drafts.append(waiting)
        self._wake(self._drafter)
        try:
            return await waiting.future
        except asyncio.CancelledError:
            if waiting in self._drafts:
                self._drafts.remove(waiting)
            raise

    def tell(self, function: Callable[..., None], *arguments: Any) -> None:
        """Call it: these rounds are made on the event loop."""
        function(*arguments)

    def drafting(self, slot: Slot) -> asyncio.Future[Any] | None:
        """What ends when nobody drafts on the state of `slot` any more; None: nobody does."""
        return self._drafting.get(slot)

    @property
    def idle(self) -> bool:
        """Nothing waits, and rounds may be made `alone`."""
        queued = self._decodes or self._prefills or self._drafts or self._turns
        return not (queued or self._closed or self._device_turns.shared)

    async def alone(self, slot: Slot, rounds: Callable[[Solo], Result]) -> Result:
        """Have `rounds` of the answer in `slot` called on the target's thread, within `begun`; they
        end when the thread is `wanted`, which whatever is asked of this service makes it.

        Where the caller is cancelled, nothing that they hold is touched any more when this raises.
        """
        relay = Relay(asyncio.get_running_loop())
        solo = Solo(self._run, self._costs, self._pulse, self._device_turns, relay)

        def begun() -> Result:
            with solo.begun():
                return rounds(solo)

        waiting = self._queue_turn(begun)
        waiting.solo = solo
        self._solo = solo
        try:
            result: Result = await self._turn_of(waiting)
        except asyncio.CancelledError:
            solo.leave()
            if solo.drafting and waiting.done is not None:
                self._note_drafting([slot], waiting.done)
            raise
        finally:
            self._solo = None
            relay.deliver()
        if relay.failure is not None:
            raise relay.failure
        return result

    async def turn(self, function: Callable[[], Result]) -> Result:
        """Have `function`, which may run the target, called in a run's place: when those whom the
        last run answered have read their rows, which the next one overwrites. What it raises is
        raised here."""
        result: Result = await self._turn_of(self._queue_turn(function))
        return result

    def _queue_turn(self, function: Callable[[], Any]) -> WaitingTurn:
        self._require_open()
        waiting = WaitingTurn(function, asyncio.get_running_loop().create_future())
        self._turns.append(waiting)
        self._wake(self._target)
        return waiting

    async def _turn_of(self, waiting: WaitingTurn) -> Any:
        try:
            return await waiting.future
        except asyncio.CancelledError:
            if waiting in self._turns:
                self._turns.remove(waiting)
            raise

    def call(self, function: Callable[[], Result]) -> asyncio.Future[Result]:
        """Queue `function`, which runs no target, for the target's thread now, between runs."""
        if self._closed:
            refused: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
            refused.set_exception(closing())
            return refused
        self._call_back()
        return self._target.worker.submit(function)

    async def close(self) -> None:
        """Wait for what runs and end the workers. What waits is refused."""
        self._closed = True
        self._call_back()
        for lane in {self._target, self._drafter}:
            await asyncio.to_thread(lane.worker.shutdown)

    def _require_open(self) -> None:
        if self._closed:
            raise closing()

    async def _submit_row(self, queue: deque[WaitingRow], waiting: WaitingRow) -> Verified:
        self._require_open()
        queue.append(waiting)
        self._wake(self._target)
        try:
            return await waiting.future
        except asyncio.CancelledError:
            if waiting in queue:
                queue.remove(waiting)
            raise

    def _call_back(self) -> None:
        """Have the thread back soon, where a stream has it for itself."""
        if self._solo is not None:
            self._solo.call_back()

    def _wake(self, lane: DeviceLane) -> None:
        self._call_back()
        if not lane.busy:
            lane.busy = True
            asyncio.get_running_loop().call_soon(self._start, lane)

    def _start(self, lane: DeviceLane) -> None:
        """Put the lane's next job on its thread, or leave it idle."""
        if self._closed:
            waiting: list[Waiting] = [*self._decodes, *self._prefills, *self._drafts, *self._turns]
            self._refuse(waiting, closing())
        elif lane is self._drafter and self._drafts_are_next():
            self._start_drafts()
        elif lane is self._target and self._turns:
            self._start_turn(self._turns.popleft())
        elif lane is self._target and (batch := self._take()):
            self._start_run(batch)
        else:
            lane.busy = False
            if lane is not self._target:
                self._wake(self._target)  # a chunk may have waited for drafts that have left

    def _start_turn(self, waiting: WaitingTurn) -> None:
        if waiting.solo is not None and waiting.solo.wanted:
            # It would come back without a round: somebody else came first.
            if not waiting.future.done():
                waiting.future.set_result(waiting.function())
            self._go_on(self._target)
            return
        waiting.done = done = self._target.worker.submit(waiting.function)
        done.add_done_callback(lambda finished: self._finish_turn(waiting, finished))

    def _finish_turn(self, waiting: WaitingTurn, finished: asyncio.Future[Any]) -> None:
        error = finished.exception()
        if error is not None:
            self._refuse([waiting], error)
        elif not waiting.future.done():
            waiting.future.set_result(finished.result())
        self._go_on(self._target)

    def _drafts_are_next(self) -> bool:
        rows_wait = bool(self._decodes) and self._drafted_last and not self.overlaps
        return bool(self._drafts) and not rows_wait

    def _start_drafts(self) -> None:
        batch = list(self._drafts)
        self._drafts.clear()
        self._drafted_last = True
        done = self._drafter.worker.submit(timed_drafts, batch)
        self._note_drafting([item.slot for item in batch], done)
        done.add_done_callback(lambda finished: self._finish_drafts(batch, finished))

    def _note_drafting(self, slots: Sequence[Slot], done: asyncio.Future[Any]) -> None:
        for slot in slots:
            self._drafting[slot] = done

        def ended(_: asyncio.Future[Any]) -> None:
            for slot in slots:
                del self._drafting[slot]

        done.add_done_callback(ended)

    def _finish_drafts(
        self, batch: list[WaitingDraft], finished: asyncio.Future[list[Drafted | Exception]]
    ) -> None:
        for item, result in zip(batch, finished.result(), strict=True):
            if item.future.done():
                continue
            if isinstance(result, Exception):
                item.future.set_exception(result)
            else:
                item.future.set_result(result)
        self._go_on(self._drafter)

    def _start_run(self, batch: list[WaitingRow]) -> None:
        self._drafted_last = False
        done = self._target.worker.submit(self._timed_run, [item.row for item in batch])
        done.add_done_callback(lambda finished: self._finish_run(batch, finished))

    def _take(self) -> list[WaitingRow]:
        """Decode rows in order of arrival, and the earliest prompt's next chunk.

        A graph of one row has no place for both, and some devices want them apart: then decodes
        and chunks take turns.
        """
        if self.overlaps and not self._decodes and (self._drafts or self._drafter.busy):
            return []
        turns = self._apart or self._most_rows == 1
        alone = turns and bool(self._decodes) and not self._prefill_turn
        prefills = [] if alone or not self._prefills else [self._pop_prefill()]
        self._prefill_turn = not prefills
        most = 0 if prefills and self._apart else self._most_rows - len(prefills)
        count = min(len(self._decodes), most)
        decodes = [self._decodes.popleft() for _ in range(count)]
        if self._costs is not None:
            share(decodes, prefills, self._costs)
        return [*decodes, *prefills]

    def _pop_prefill(self) -> WaitingRow:
        earliest = min(self._prefills, key=lambda item: item.order)
        self._prefills.remove(earliest)
        return earliest

    def _timed_run(self, rows: list[Row]) -> tuple[list[RowResult], float]:
        started = time.perf_counter()
        results = self._run(rows)
        return results, (time.perf_counter() - started) * 1e3

    def _finish_run(
        self, batch: list[WaitingRow], finished: asyncio.Future[tuple[list[RowResult], float]]
    ) -> None:
        error = finished.exception()
        if error is not None:
            self._refuse(batch, error)
        else:
            self._answer(batch, *finished.result())
        self._go_on(self._target)

    def _answer(self, batch: list[WaitingRow], results: list[RowResult], run_ms: float) -> None:
        shape = RunShape.of(
            ((item.row.past, len(item.row.tokens)) for item in batch),
            tree=any(item.row.parents is not None for item in batch),
        )
        if self._costs is not None and all(item.offer is not None for item in batch):
            self._costs.observe(shape, run_ms)
        for item, result in zip(batch, results, strict=True):
            if not item.future.done():
                item.future.set_result(Verified(result, run_ms, shape, item.draft))

    def _go_on(self, lane: DeviceLane) -> None:
        # After the callers that were answered just now have been resumed and have queued again.
        asyncio.get_running_loop().call_soon(self._start, lane)

    def _refuse(self, batch: Iterable[Waiting], error: BaseException) -> None:
        for item in batch:
            if not item.future.done():
                item.future.set_exception(error)
