"""The thread that does what it is given."""

from __future__ import annotations

import asyncio
import threading

import pytest

from gateway.engine.worker import Worker


async def test_what_a_function_returns_and_raises_is_told() -> None:
    worker = Worker("worker")
    assert await worker.submit(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        await worker.submit(divmod, 7, 0)
    worker.shutdown()


async def test_all_is_done_on_one_thread_in_its_order() -> None:
    worker, done = Worker("device"), list[tuple[int, str]]()

    def note(number: int) -> None:
        done.append((number, threading.current_thread().name))

    await asyncio.gather(*(worker.submit(note, number) for number in range(20)))
    worker.shutdown()
    assert done == [(number, "device") for number in range(20)]


async def test_what_was_cancelled_before_its_turn_is_not_done() -> None:
    worker, gate, done = Worker("worker"), threading.Event(), list[str]()
    first = worker.submit(gate.wait)
    cancelled = worker.submit(done.append, "cancelled")
    last = worker.submit(done.append, "last")
    cancelled.cancel()
    gate.set()
    await asyncio.gather(first, last)
    worker.shutdown()
    assert done == ["last"]


async def test_what_is_cancelled_while_it_runs_ends_unheard() -> None:
    worker, started, gate = Worker("worker"), threading.Event(), threading.Event()

    def wait() -> None:
        started.set()
        gate.wait()

    running = worker.submit(wait)
    await asyncio.to_thread(started.wait)
    running.cancel()
    gate.set()
    assert await worker.submit(int, "5") == 5
    worker.shutdown()


async def test_shutdown_waits_for_what_was_submitted() -> None:
    worker, gate, done = Worker("worker"), threading.Event(), list[str]()
    waiting = worker.submit(gate.wait)
    last = worker.submit(done.append, "last")
    ending = asyncio.create_task(asyncio.to_thread(worker.shutdown))
    await asyncio.sleep(0)
    assert not ending.done()
    gate.set()
    await ending
    assert done == ["last"]
    await asyncio.gather(waiting, last)


def test_one_that_never_worked_ends_at_once() -> None:
    Worker("worker").shutdown()


def test_a_loop_that_was_closed_does_not_end_the_thread() -> None:
    worker, gate = Worker("worker"), threading.Event()

    async def leave() -> None:
        worker.submit(gate.wait)

    async def come_back() -> int:
        return await worker.submit(int, "5")

    asyncio.run(leave())
    gate.set()
    assert asyncio.run(come_back()) == 5
    worker.shutdown()
