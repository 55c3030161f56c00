"""Loads beside answers: one after the other, given up where they hang, waited for at the end."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest

from gateway.engine import background
from gateway.engine.background import BackgroundLoads
from gateway.fleet import fleet
from models.errors import UserError
from tests.patience import HOLD, until

LITTLE = 0.05


class Graphs:
    """What is loaded: each load notes that it began, and waits for the gate."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.gate = threading.Event()
        self.error: Exception | None = None

    def load(self, name: str) -> None:
        self.begun.append(name)
        assert self.gate.wait(HOLD), "a test forgot to open the gate"
        if self.error is not None:
            raise self.error


async def refusal(loads: BackgroundLoads, graphs: Graphs, name: str) -> str:
    with pytest.raises(UserError) as error:
        await loads(name, graphs.load, name)
    assert error.value.code == "device_error"
    return error.value.message


async def test_they_come_one_after_the_other_on_a_thread_that_yields() -> None:
    loads, threads = BackgroundLoads(), list[str]()
    running = 0

    def load(name: str) -> None:
        nonlocal running
        running += 1
        assert running == 1, "one at a time"
        threads.append(threading.current_thread().name)
        running -= 1

    await asyncio.gather(*(loads(name, load, name) for name in "abc"))
    assert threads == ["background"] * 3


async def test_what_it_raises_is_raised_and_the_next_one_is_tried() -> None:
    loads, graphs = BackgroundLoads(), Graphs()
    graphs.gate.set()
    graphs.error = UserError("it does not fit.", code="out_of_memory")
    with pytest.raises(UserError, match="it does not fit"):
        await loads("a", graphs.load, "a")
    graphs.error = None
    await loads("a", graphs.load, "a")
    assert graphs.begun == ["a", "a"]


async def test_one_that_hangs_is_given_up_and_none_is_begun_until_it_comes_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loads, graphs = BackgroundLoads(), Graphs()
    loads.limit(LITTLE)
    with caplog.at_level(logging.WARNING):
        first, second = await asyncio.gather(
            refusal(loads, graphs, "a"), refusal(loads, graphs, "b")
        )
        assert first == f"loading a does not get on: it was given up after {LITTLE} s."
        assert "the last attempt to load a still hangs" in second
        assert "the last attempt to load a still hangs" in await refusal(loads, graphs, "a")
        assert graphs.begun == ["a"], "no thread more"
        graphs.gate.set()
        await until(lambda: len(caplog.records) == 2)
    assert [each.getMessage() for each in caplog.records] == [
        "loading a does not get on; it is given up",
        "the attempt to load a that hung came back",
    ]
    await loads("b", graphs.load, "b")
    assert graphs.begun == ["a", "b"]


async def test_who_waits_while_the_engine_starts_is_given_up_by_the_start_alone() -> None:
    loads, graphs = BackgroundLoads(), Graphs()
    waiting = asyncio.create_task(loads("a", graphs.load, "a"))
    await asyncio.wait([waiting], timeout=4 * LITTLE)
    assert not waiting.done(), "there is no limit yet"
    graphs.gate.set()
    await waiting


async def test_the_end_waits_for_what_is_being_loaded() -> None:
    loads, graphs = BackgroundLoads(), Graphs()
    await loads.close()  # nothing is
    waiting = asyncio.create_task(loads("a", graphs.load, "a"))
    await until(lambda: graphs.begun == ["a"])
    waiting.cancel()
    await asyncio.wait([waiting])
    assert waiting.cancelled()
    closing = asyncio.create_task(loads.close())
    await asyncio.wait([closing], timeout=4 * LITTLE)
    assert not closing.done(), "the process must not go on to its end beside it"
    graphs.gate.set()
    await closing


async def test_the_end_does_not_wait_for_ever() -> None:
    """A package whose device failed is loaded again though a drafter's load hangs."""
    loads, graphs = BackgroundLoads(), Graphs()
    loads.limit(LITTLE)
    await refusal(loads, graphs, "a")
    await loads.close(LITTLE)
    assert graphs.begun == ["a"]
    graphs.gate.set()
    assert background.CLOSE_SECONDS > fleet.CLOSE_SECONDS, "a gateway leaves beside it"
