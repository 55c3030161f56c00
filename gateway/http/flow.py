"""What stands between a request and the engine: its key's limits, its end, and who counts it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import TracebackType

from gateway.engine.requests import Delta, Event, Finished, GenerationRequest
from gateway.fleet.loaded import Use
from gateway.http.backend import Generation
from gateway.http.rates import Rates
from gateway.trace import CURRENT, Progress
from models.errors import DeviceError, UserError


class Flow:
    """Opens generations. `seconds` is how long one may take in all (None: no end)."""

    def __init__(self, rates: Rates, seconds: float | None) -> None:
        self._rates = rates
        self._seconds = seconds

    def open(self, use: Use, request: GenerationRequest, n: int) -> list[WatchedGeneration]:
        """`n` answers to one prompt. Raises what the engine does, and `rate_limit_exceeded`."""
        engine = use.engine
        self._rates.begin(request.key, n)
        generations = engine.open_choices(request, n)
        self._rates.charge(request.key, len(request.prompt))
        return [
            WatchedGeneration(each, self._rates, self._seconds, use.again()) for each in generations
        ]


class WatchedGeneration:
    """A generation whose tokens are charged to its key, that ends in time, whose progress the
    request's trace tells, and whose engine stays loaded meanwhile (`use`)."""

    def __init__(
        self, generation: Generation, rates: Rates, seconds: float | None, use: Use
    ) -> None:
        self._use = use
        self._generation = generation
        self._rates = rates
        self._seconds = seconds
        self._owner = generation.request.key
        self._progress = Progress.of(generation.request)
        self._events: AsyncIterator[Event] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._expired = False
        trace = CURRENT.get()
        if trace is not None:
            trace.answers.append(self._progress)

    @property
    def request(self) -> GenerationRequest:
        return self._generation.request

    async def __aenter__(self) -> WatchedGeneration:
        self._rates.running(self._owner, 1)
        self._use.begin(self)
        if self._seconds is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._seconds, self._expire)
        try:
            await self._generation.__aenter__()
        except BaseException:
            self._stop_counting()
            self._use.end(self)
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        self._stop_counting()
        try:
            return await self._generation.__aexit__(kind, error, traceback)
        finally:
            self._use.end(self)

    def cancel(self) -> None:
        self._generation.cancel()

    def fail(self, error: Exception) -> None:
        self._generation.fail(error)

    def __aiter__(self) -> AsyncIterator[Event]:
        self._events = aiter(self._generation)
        return self

    async def __anext__(self) -> Event:
        assert self._events is not None, "it is iterated over"
        try:
            event = await anext(self._events)
        except DeviceError as error:
            raise self._use.failed(error) from error
        self._progress.note(event)
        if isinstance(event, Delta):
            self._rates.charge(self._owner, len(event.ids))
        elif isinstance(event, Finished) and event.reason == "cancelled" and self._expired:
            raise UserError(
                f"The answer was not ready within {self._seconds:g} s, and was cut.",
                code="request_timeout",
            )
        return event

    def _expire(self) -> None:
        self._expired = True
        self._generation.cancel()

    def _stop_counting(self) -> None:
        self._rates.running(self._owner, -1)
        if self._timer is not None:
            self._timer.cancel()
