"""Rounds of a stream that is alone, on the thread of the runs: nothing is handed over there."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any, Protocol, TypeVar

from gateway.engine.batches import alone
from gateway.engine.costs.run_costs import RunCosts
from gateway.engine.device_turns import DeviceTurns
from gateway.engine.policies.offers import NOTHING, Offer
from gateway.engine.pulse import Pulse
from gateway.engine.waiting import Drafted, Verified
from models.draft import Draft
from models.slots import Slot
from models.target import Row, RowResult

Result = TypeVar("Result")


class LeftError(BaseException):
    """Who awaited the rounds has left: nothing of theirs may be touched any more."""


class Rounds(Protocol):
    """What a round needs of the models: `ModelService`, or `Solo`."""

    @property
    def overlaps(self) -> bool: ...

    @property
    def closed(self) -> bool: ...

    async def decode(self, slot: Slot, token: int, offer: Offer = NOTHING) -> Verified: ...

    async def draft(self, slot: Slot, propose: Callable[[], Draft]) -> Drafted: ...

    def tell(self, function: Callable[..., None], *arguments: Any) -> None:
        """Have `function` called on the event loop, after those before it."""


class Relay:
    """Calls that a worker wants made on the event loop, in order; what waits is made together.

    `failure` is the first that one of them failed with.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._posted = False
        self.failure: Exception | None = None

    def put(self, function: Callable[..., None], *arguments: Any) -> None:
        self._waiting.append((function, arguments))

    def post(self) -> None:
        """Have made what was put."""
        if self._posted or not self._waiting:
            return
        self._posted = True
        try:
            self._loop.call_soon_threadsafe(self.deliver)
        except RuntimeError:
            return  # the loop was closed: nobody waits

    def deliver(self) -> None:
        """On the event loop."""
        self._posted = False  # first: what is put from now on is posted anew
        while self._waiting:
            function, arguments = self._waiting.popleft()
            try:
                function(*arguments)
            except Exception as error:  # whoever awaits the rounds is told
                self.failure = self.failure or error


class Solo:
    """The models as a stream has them that is alone, on their own thread.

    Its methods return without ever waiting, so a coroutine that awaits nothing else is run by
    `now`. What the rounds hold is theirs within `begun`, but not during a run: whoever awaits them
    on the event loop may `leave` then, and has everything to itself at once. `wanted` says that the
    thread is wanted for something else after this round. What may as well be done on the event loop
    while the next run goes on goes into the `relay`.
    """

    overlaps = False
    closed = False
    drafting = False
    """A drafter runs, which holds its slot's state beyond `leave`."""

    def __init__(
        self,
        run: Callable[[Sequence[Row]], list[RowResult]],
        costs: RunCosts | None,
        pulse: Pulse,
        turns: DeviceTurns,
        relay: Relay,
    ) -> None:
        self.relay = relay
        self._run = run
        self._costs = costs
        self._pulse = pulse
        self._turns = turns
        self._held = Lock()
        self._left = False
        self._called_back = False

    @property
    def wanted(self) -> bool:
        failed = self.relay.failure is not None
        return self._called_back or self._turns.shared or failed

    def call_back(self) -> None:
        """From the event loop: the thread is wanted."""
        self._called_back = True

    def leave(self) -> None:
        """From the event loop: nothing of what the rounds hold is touched there any more."""
        with self._held:
            self._left = True

    @contextmanager
    def begun(self) -> Iterator[None]:
        """Raises `LeftError`."""
        with self._held:
            self._require_company()
            yield

    async def decode(self, slot: Slot, token: int, offer: Offer = NOTHING) -> Verified:
        """As `ModelService.decode`."""
        item = alone(slot, token, offer, self._costs)
        self._begin_run()
        try:
            started = time.perf_counter()
            (result,) = self._run([item.row])
            run_ms = (time.perf_counter() - started) * 1e3
        finally:
            self._end_run()
        shape = item.shape
        if self._costs is not None:
            self.relay.put(self._costs.observe, shape, run_ms)
        return Verified(result, run_ms, shape, item.draft)

    async def draft(self, slot: Slot, propose: Callable[[], Draft]) -> Drafted:
        """As `ModelService.draft`."""
        self.drafting = True
        try:
            self._begin_run()
            try:
                started = time.perf_counter()
                draft = propose()
                run_ms = (time.perf_counter() - started) * 1e3
            finally:
                self._end_run()
        finally:
            self.drafting = False
        return Drafted(draft, run_ms)

    def tell(self, function: Callable[..., None], *arguments: Any) -> None:
        self.relay.put(function, *arguments)

    def _begin_run(self) -> None:
        # Each run has its own time, though all of them are one job of the thread.
        self._pulse.begin()
        self._held.release()

    def _end_run(self) -> None:
        # However it ended: what it failed with is nobody's any more where they left.
        self._held.acquire()
        self._require_company()

    def _require_company(self) -> None:
        if self._left:
            raise LeftError


def now(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """What `coroutine` returns, which waits for nothing."""
    try:
        coroutine.send(None)
    except StopIteration as returned:
        result: Result = returned.value
        return result
    coroutine.close()
    raise AssertionError("a round that is alone waits for nothing")
