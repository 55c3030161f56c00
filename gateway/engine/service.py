"""The target as a service: callers await rows, a worker thread runs what waits."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

from models.errors import UserError
from models.target import Row, RowResult

Result = TypeVar("Result")
Run = Callable[[Sequence[Row]], list[RowResult]]


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


@dataclass(slots=True)
class _Waiting:
    row: Row
    order: int
    future: asyncio.Future[Verified] = field(repr=False)


class TargetService:
    """Packs waiting rows into runs.

    Decode rows go first; one waiting prefill chunk rides along in every run, so that a prompt is
    never starved and streams wait for one chunk at most. A run starts when the event loop has
    resumed everybody whom the last run answered: requests that decode together stay together.
    """

    def __init__(self, run: Run, most_rows: int) -> None:
        self._run = run
        self._most_rows = most_rows
        self._decodes: deque[_Waiting] = deque()
        self._prefills: deque[_Waiting] = deque()
        self._prefill_turn = False
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="target")
        self._busy = False
        self._closed = False

    async def decode(self, row: Row) -> Verified:
        """Verify a draft: `row` is the last committed token and the draft."""
        return await self._submit(self._decodes, row, order=0)

    async def prefill(self, row: Row, order: int) -> Verified:
        """Run a chunk of a prompt. The prompt of lowest `order` is prefilled first."""
        return await self._submit(self._prefills, row, order)

    def call(self, function: Callable[[], Result]) -> asyncio.Future[Result]:
        """Queue `function` for the worker thread now, between target runs."""
        loop = asyncio.get_running_loop()
        if self._closed:
            refused: asyncio.Future[Result] = loop.create_future()
            refused.set_exception(_closing())
            return refused
        return loop.run_in_executor(self._worker, function)

    async def close(self) -> None:
        """Wait for the run in progress and end the worker. Rows that wait are refused."""
        self._closed = True
        await asyncio.to_thread(self._worker.shutdown)

    async def _submit(self, queue: deque[_Waiting], row: Row, order: int) -> Verified:
        if self._closed:
            raise _closing()
        waiting = _Waiting(row, order, asyncio.get_running_loop().create_future())
        queue.append(waiting)
        self._wake()
        try:
            return await waiting.future
        except asyncio.CancelledError:
            if waiting in queue:
                queue.remove(waiting)
            raise

    def _wake(self) -> None:
        if not self._busy:
            self._busy = True
            asyncio.get_running_loop().call_soon(self._start_run)

    def _start_run(self) -> None:
        if self._closed:
            self._refuse([*self._decodes, *self._prefills], _closing())
            return
        batch = self._take()
        if not batch:
            self._busy = False
            return
        loop = asyncio.get_running_loop()
        done = loop.run_in_executor(self._worker, self._timed_run, [item.row for item in batch])
        done.add_done_callback(lambda finished: self._finish(batch, finished))

    def _take(self) -> list[_Waiting]:
        """Decode rows in order of arrival, and the earliest prompt's next chunk.

        A graph of one row has no place for both: decodes and chunks take turns.
        """
        alone = self._most_rows == 1 and bool(self._decodes) and not self._prefill_turn
        prefills = [] if alone or not self._prefills else [self._pop_prefill()]
        self._prefill_turn = not prefills
        decodes = min(len(self._decodes), self._most_rows - len(prefills))
        return [*(self._decodes.popleft() for _ in range(decodes)), *prefills]

    def _pop_prefill(self) -> _Waiting:
        earliest = min(self._prefills, key=lambda item: item.order)
        self._prefills.remove(earliest)
        return earliest

    def _timed_run(self, rows: list[Row]) -> tuple[list[RowResult], float]:
        started = time.perf_counter()
        results = self._run(rows)
        return results, (time.perf_counter() - started) * 1e3

    def _finish(
        self, batch: list[_Waiting], finished: asyncio.Future[tuple[list[RowResult], float]]
    ) -> None:
        error = finished.exception()
        if error is not None:
            self._refuse(batch, error)
        else:
            self._answer(batch, *finished.result())
        # After the callers that this run answered have been resumed and have queued again.
        asyncio.get_running_loop().call_soon(self._start_run)

    def _refuse(self, batch: list[_Waiting], error: BaseException) -> None:
        for item in batch:
            if not item.future.done():
                item.future.set_exception(error)

    def _answer(self, batch: list[_Waiting], results: list[RowResult], run_ms: float) -> None:
        tokens = sum(len(item.row.tokens) for item in batch)
        tree = any(item.row.parents is not None for item in batch)
        for item, result in zip(batch, results, strict=True):
            if not item.future.done():
                item.future.set_result(Verified(result, run_ms, tokens, len(batch), tree))


def _closing() -> UserError:
    return UserError("the gateway is shutting down; try again later.", code="draining")
