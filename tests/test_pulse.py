"""Since when a device's threads run, and what the worker tells of that."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from typing import TypeVar

import pytest

from gateway.engine.device_turns import DeviceTurns
from gateway.engine.generation import Generation
from gateway.engine.pulse import Pulse
from gateway.engine.requests import GenerationRequest
from gateway.engine.worker import Worker, on_device
from gateway.service_manager.watchdog import Watchdog
from models.errors import DeviceError, UserError
from models.package import Package
from tests.engine_support import GREEDY, OFF, build_engine
from tests.patience import HOLD, PATIENCE

Result = TypeVar("Result")


async def within(future: asyncio.Future[Result]) -> Result:
    return await asyncio.wait_for(future, PATIENCE)


def test_idle_running_and_idle_again() -> None:
    pulse = Pulse()
    assert pulse.running_for(time.monotonic()) is None
    before = time.monotonic()
    pulse.begin()
    after = time.monotonic()
    running = pulse.running_for(after + 5)
    assert running is not None
    assert 5 <= running <= 5 + after - before
    pulse.end()
    assert pulse.running_for(time.monotonic()) is None


def test_of_two_threads_the_longer_run_counts() -> None:
    pulse, begun, go_on = Pulse(), threading.Event(), threading.Event()

    def work() -> None:
        pulse.begin()
        begun.set()
        assert go_on.wait(HOLD)
        pulse.end()

    thread = threading.Thread(target=work)
    thread.start()
    assert begun.wait(PATIENCE)
    first = time.monotonic()
    pulse.begin()
    running = pulse.running_for(first + 1)
    assert running is not None
    assert running >= 1
    pulse.end()
    still = pulse.running_for(first + 1)
    assert still == running
    go_on.set()
    thread.join(PATIENCE)
    assert pulse.running_for(first) is None


async def first_of(generation: Generation) -> object:
    return await anext(aiter(generation))


async def test_a_run_of_an_engine_that_hangs_starves_the_watchdog(package: Package) -> None:
    engine = build_engine(package, slots=1)
    now, fed = [0.0], []
    watchdog = Watchdog(10.0, lambda: fed.append(now[0]), engine.pulse.running_for, lambda: now[0])
    try:
        now[0] = time.monotonic()
        assert watchdog.tick(), "idle is healthy"
        engine.target.gate.clear()
        request = GenerationRequest(
            prompt=(1, 2, 3), max_tokens=2, sampling=GREEDY, speculation=OFF
        )
        async with engine.open(request) as generation:
            reading = asyncio.create_task(first_of(generation))
            while engine.pulse.running_for(time.monotonic()) is None:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            now[0] = time.monotonic() + 4
            assert watchdog.tick(), "a run of 4 s is no hang"
            now[0] = time.monotonic() + 6
            assert not watchdog.tick()
            assert len(fed) == 2
            engine.target.gate.set()
            await reading
    finally:
        engine.target.gate.set()
        await engine.close()
    assert engine.pulse.running_for(time.monotonic()) is None
    assert watchdog.tick(), "it goes on once the run has ended"


def test_nothing_runs_before_the_first_and_after_the_last() -> None:
    pulse = Pulse()
    assert pulse.running_for(time.monotonic()) is None
    before = time.monotonic()
    pulse.begin()
    after = time.monotonic()
    assert after - before + 5 >= (pulse.running_for(before + 5) or 0) - (before - after)
    assert pulse.running_for(after + 5) == pytest.approx(5, abs=after - before + 1e-6)
    assert pulse.running_for(before - 1) == 0.0, "a clock that was read before"
    pulse.end()
    assert pulse.running_for(time.monotonic()) is None


def test_of_two_threads_the_one_counts_that_runs_for_longest() -> None:
    pulse = Pulse()
    started, finish = threading.Event(), threading.Event()

    def long() -> None:
        pulse.begin()
        started.set()
        assert finish.wait(HOLD)
        pulse.end()

    thread = threading.Thread(target=long)
    thread.start()
    assert started.wait(PATIENCE)
    began = time.monotonic()
    pulse.begin()
    seconds = pulse.running_for(began + 7)
    assert seconds is not None
    assert seconds > 7, "the other thread began before"
    pulse.end()
    assert pulse.running_for(began + 7) == seconds
    finish.set()
    thread.join(PATIENCE)
    assert pulse.running_for(began) is None


async def test_a_worker_has_its_time_in_the_pulse_whatever_its_work_raises() -> None:
    pulse = Pulse()
    worker, running = Worker("test", pulse, DeviceTurns()), []

    def fail() -> None:
        running.append(pulse.running_for(time.monotonic()))
        raise ValueError("wrong")

    assert await within(worker.submit(lambda value: value + 1, 4)) == 5
    with pytest.raises(ValueError, match="wrong"):
        await within(worker.submit(fail))
    worker.shutdown()
    assert running[0] is not None
    assert pulse.running_for(time.monotonic()) is None


def test_what_a_run_fails_with_is_the_devices() -> None:
    class OutOfMemoryError(Exception):
        pass

    @on_device
    def run(error: Exception) -> None:
        raise error

    with pytest.raises(DeviceError, match="no room") as failed:
        run(OutOfMemoryError("no room"))
    assert isinstance(failed.value.__cause__, OutOfMemoryError)
    with pytest.raises(DeviceError, match="MemoryError"):
        run(MemoryError())
    with pytest.raises(UserError, match="asked"):
        run(UserError("asked for too much", code="x"))
    assert on_device(max)(3, 4) == 4


async def test_while_one_engine_is_loaded_nobody_waits_for_a_turn() -> None:
    turns = DeviceTurns()
    first, second = Worker("a", Pulse(), turns), Worker("b", Pulse(), turns)
    inside, finish = threading.Event(), threading.Event()
    held = first.submit(lambda: (inside.set(), finish.wait(HOLD)))
    assert inside.wait(PATIENCE)
    assert await within(second.submit(lambda: 7)) == 7
    finish.set()
    await within(held)
    first.shutdown()
    second.shutdown()


async def test_engines_that_share_a_device_run_one_at_a_time_and_in_turn() -> None:
    turns = DeviceTurns()
    turns.shared = True
    running, most, order = [], [], []
    lock = threading.Lock()

    def run(name: str) -> None:
        with lock:
            running.append(name)
            most.append(len(running))
            order.append(name)
        # The run itself takes until the other one waits, as long as there are others.
        while len(order) < 39 and not turns._waiting:
            time.sleep(0.0001)
        with lock:
            running.remove(name)

    workers = {name: Worker(name, Pulse(), turns) for name in "ab"}
    jobs = [workers[name].submit(run, name) for _ in range(20) for name in "ab"]
    for job in jobs:
        await within(job)
    assert max(most) == 1
    assert sorted(order) == ["a"] * 20 + ["b"] * 20
    # Each queues its next run when the last one has ended: nobody has two while the other waits.
    both = order[1:39]
    assert all(first != second for first, second in itertools.pairwise(both))
    for worker in workers.values():
        worker.shutdown()


async def test_a_run_that_comes_back_late_ends_nobody_elses_turn() -> None:
    """An engine has two threads. What ends one's run, whose turn was given up, is not the other's
    turn, though both are the same engine's."""
    turns = DeviceTurns()
    turns.shared = True
    pulse = Pulse()
    target, drafter, other = (
        Worker("target", pulse, turns),
        Worker("drafter", pulse, turns),
        Worker("other", Pulse(), turns),
    )
    late, last = threading.Event(), threading.Event()
    inside, drafting = threading.Event(), threading.Event()
    stuck = target.submit(lambda: (inside.set(), late.wait(HOLD)))
    assert inside.wait(PATIENCE)
    turns.give_up(pulse)
    drafted = drafter.submit(lambda: (drafting.set(), last.wait(HOLD)))
    assert drafting.wait(PATIENCE)
    present = turns._present
    late.set()
    await within(stuck)
    assert turns._present is present is not None, "the device is the drafter's still"
    ran: list[bool] = []
    waiting = other.submit(lambda: ran.append(last.is_set()))
    last.set()
    await within(drafted)
    await within(waiting)
    assert ran == [True], "nobody runs beside the drafter"
    for worker in (target, drafter, other):
        worker.shutdown()


async def test_a_run_that_does_not_come_back_loses_its_turn() -> None:
    turns = DeviceTurns()
    turns.shared = True
    stuck, waits = Pulse(), Pulse()
    first, second = Worker("a", stuck, turns), Worker("b", waits, turns)
    inside, finish = threading.Event(), threading.Event()
    held = first.submit(lambda: (inside.set(), finish.wait(HOLD)))
    assert inside.wait(PATIENCE)
    waiting = second.submit(lambda: 7)
    assert waits.running_for(time.monotonic()) is None, "waiting for a turn is no run"
    turns.give_up(stuck)
    assert await within(waiting) == 7
    finish.set()
    await within(held)
    turns.give_up(stuck)
    assert await within(second.submit(lambda: 8)) == 8
    first.shutdown()
    second.shutdown()
