"""When the watchdog is fed."""

from __future__ import annotations

import asyncio
import logging

import pytest

from gateway.service_manager.watchdog import Watchdog, watchdog_seconds
from tests.patience import PATIENCE


def test_the_environment_says_whose_it_is_and_how_often() -> None:
    assert watchdog_seconds({}) is None
    assert watchdog_seconds({"WATCHDOG_USEC": "0"}) is None
    assert watchdog_seconds({"WATCHDOG_USEC": "soon"}) is None
    assert watchdog_seconds({"WATCHDOG_USEC": "2500000"}) == 2.5
    mine = {"WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "77"}
    assert watchdog_seconds(mine, pid=77) == 1.0
    assert watchdog_seconds(mine, pid=78) is None


class World:
    """A clock, and a worker that does what it is told."""

    def __init__(self, seconds: float) -> None:
        self.now = 1000.0
        self.begun: float | None = None
        self.fed: list[float] = []
        self.watchdog = Watchdog(
            seconds, lambda: self.fed.append(self.now), self.running_for, lambda: self.now
        )

    def running_for(self, now: float) -> float | None:
        return None if self.begun is None else now - self.begun

    def pass_time(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now += self.watchdog.interval
            self.watchdog.tick()


def gaps(world: World) -> float:
    return max(b - a for a, b in zip(world.fed, world.fed[1:], strict=False))


def test_an_idle_worker_is_healthy() -> None:
    world = World(8.0)
    assert (world.watchdog.interval, world.watchdog.limit) == (2.0, 4.0)
    world.pass_time(20)
    assert len(world.fed) == 10


def test_short_runs_without_end_feed_it() -> None:
    world = World(8.0)
    for _ in range(40):
        world.begun = world.now
        world.pass_time(2)
    assert gaps(world) == 2.0


def test_a_run_that_ends_within_the_time_never_starves_it() -> None:
    world = World(8.0)
    world.pass_time(2)
    for _ in range(5):
        world.begun = world.now
        world.pass_time(8)
        world.begun = None
        world.pass_time(2)
    assert gaps(world) <= 8.0


def test_a_run_without_end_starves_it_and_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    world = World(8.0)
    world.pass_time(2)
    world.begun = world.now
    with caplog.at_level(logging.WARNING):
        world.pass_time(40)
        assert world.fed[-1] <= world.begun + world.watchdog.limit
        world.begun = None
        world.pass_time(2)
    assert [record.getMessage() for record in caplog.records] == [
        "a run has not ended for 6 s: the watchdog is not fed",
        "the run has ended: the watchdog is fed again",
    ]
    assert world.fed[-1] == world.now


async def test_it_ticks_until_it_is_cancelled() -> None:
    fed = asyncio.Event()
    watchdog = Watchdog(0.04, fed.set, lambda now: None)
    task = asyncio.create_task(watchdog.run())
    for _ in range(3):
        fed.clear()
        await asyncio.wait_for(fed.wait(), PATIENCE)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
