"""A run that does not come back: who is told, and what becomes of the gateway."""

from __future__ import annotations

import time
from typing import Any

from gateway.fleet.fleet import Fleet
from gateway.fleet.terms import Terms
from gateway.fleet.watch import Watch
from tests.fleet_support import Starts, fleet_of
from tests.http_serving import until

TERMS = Terms(stuck_seconds=100, stuck_exit_seconds=50, first_pause=0, drain_seconds=0)


class Clock:
    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead


class Cut:
    def __init__(self) -> None:
        self.errors: list[Any] = []

    def fail(self, error: Exception) -> None:
        self.errors.append(error)


async def watched() -> tuple[Fleet, Starts, Watch, Clock, list[str]]:
    fleet, starts = await fleet_of("a", "b", terms=TERMS)
    clock, left = Clock(), list[str]()
    return fleet, starts, Watch(fleet, left.append, clock), clock, left


async def test_runs_that_come_back_are_nothing_to_see() -> None:
    fleet, starts, watch, clock, left = await watched()
    pulse = starts.engines[0].pulse
    pulse.begin()
    clock.ahead = 99
    watch.look()
    pulse.end()
    clock.ahead = 1000
    watch.look()
    assert (fleet.stuck, left, fleet.member("a").state) == (False, [], "loaded")


async def test_a_stuck_run_fails_its_answers_and_comes_back_or_ends_the_gateway() -> None:
    fleet, starts, watch, clock, left = await watched()
    engine, other, answer, unhurt = starts.engines[0], await fleet.pick("b"), Cut(), Cut()
    other.begin(unhurt)
    use = await fleet.pick("a")
    use.begin(answer)
    engine.pulse.begin()
    clock.ahead = 101
    watch.look()
    watch.look()
    (error,) = answer.errors
    assert error.code == "device_error"
    assert "has not come back" in error.message
    assert (engine.interrupted, unhurt.errors) == (True, [])
    assert (fleet.stuck, fleet.member("a").state, fleet.member("b").state) == (
        True,
        "stuck",
        "loaded",
    )
    assert "has not come back" in (fleet.member("a").problem or "")
    clock.ahead = 149
    watch.look()
    assert left == []
    clock.ahead = 151
    watch.look()
    watch.look()
    (reason,) = left
    assert "package a" in reason
    # It was only very slow.
    engine.pulse.end()
    use.end(answer)
    await until(lambda: fleet.member("a").state == "loaded")
    assert not fleet.stuck
    assert engine.closed
    other.end(unhurt)


async def test_the_fleet_has_the_pulse_of_all_its_engines() -> None:
    fleet, starts, _, clock, _ = await watched()
    await fleet.pick("b")
    first, second = (engine.pulse for engine in starts.engines)
    assert fleet.running_for(clock()) is None
    first.begin()
    clock.ahead = 30
    seconds = fleet.running_for(clock())
    assert seconds is not None
    assert seconds >= 30
    first.end()
    second.begin()
    second.end()
    assert fleet.running_for(clock()) is None


async def test_where_no_run_is_stuck_nobody_looks() -> None:
    await Watch(Fleet(Terms(stuck_seconds=None)), lambda reason: None).run()
