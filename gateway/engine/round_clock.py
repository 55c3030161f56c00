"""Times rounds, for what they take beside their runs."""

from __future__ import annotations

import time
from typing import Protocol

from gateway.engine.costs.run_costs import RunCosts
from gateway.engine.costs.streams import Streams
from gateway.engine.drafting import Drafting
from gateway.engine.solo import Rounds
from gateway.engine.waiting import Verified


class Resources(Protocol):
    """What a clock needs of its engine."""

    @property
    def costs(self) -> RunCosts: ...

    @property
    def streams(self) -> Streams: ...


class RoundClock:
    """Runs from when it is made until `stop`.

    Others' runs are no overhead: only rounds of a stream that was alone tell.
    """

    def __init__(self, resources: Resources, drafting: Drafting | None) -> None:
        self._resources = resources
        self._drafting = drafting
        self._drafted_ms = self._draft_run_ms()
        self._alone = len(resources.streams) == 1
        self._started = time.perf_counter()

    def stop(self, verified: Verified, rounds: Rounds) -> None:
        if not self._alone or len(self._resources.streams) > 1 or verified.shape.rows > 1:
            return
        taken = (time.perf_counter() - self._started) * 1e3
        drafted = self._draft_run_ms() - self._drafted_ms
        beside = taken - verified.run_ms - drafted
        rounds.tell(self._resources.costs.overhead.observe, beside)

    def _draft_run_ms(self) -> float:
        return 0.0 if self._drafting is None else self._drafting.run_ms
