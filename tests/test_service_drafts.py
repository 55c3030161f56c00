"""The service's drafts: who runs when, who waits for whom, and what a failure reaches."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest
import uvloop

from gateway.engine.service import ModelService
from gateway.engine.waiting import Drafted
from models.draft import Draft
from models.errors import UserError
from models.slots import Slot
from tests.engine_support import until
from tests.patience import HOLD, PATIENCE
from tests.test_service import CHUNK, FakeTarget, asked, held, row, serving, submitted


def slot(index: int = 0) -> Slot:
    return Slot(index, 1000, ())


class FakeDrafts:
    """Drafts that note in `target.runs` when they ran: draft n as [-n]. They can be held."""

    def __init__(self, target: FakeTarget) -> None:
        self._target = target
        self.gate = threading.Event()
        self.gate.set()
        self.threads: set[str] = set()

    def __call__(self, number: int) -> Callable[[], Draft]:
        def propose() -> Draft:
            self._target.runs.append([-number])
            self.threads.add(threading.current_thread().name)
            assert self.gate.wait(HOLD)
            return Draft((number,), source="fake")

        return propose


def failing() -> Draft:
    raise RuntimeError("the graph failed")


async def together(*calls: Awaitable[object]) -> list[object]:
    async with asyncio.timeout(PATIENCE):
        return list(await asyncio.gather(*calls))


async def test_a_draft_comes_with_the_time_of_its_own_run() -> None:
    async with serving(4) as (service, target):
        drafted = await service.draft(slot(), FakeDrafts(target)(7))
    assert drafted.draft.tokens == (7,)
    assert drafted.run_ms > 0


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_streams_that_draft_stay_packed_in_one_run(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """Also with a prompt that waits, and with a stream that needs no draft in some rounds."""
    rounds = 12

    async def stream(service: ModelService, drafts: FakeDrafts, index: int) -> None:
        own = slot(index)
        for number in range(rounds):
            if index or number % 3:
                await service.draft(own, drafts(index + 1))
            await service.decode(*asked(index))

    async def prompt(service: ModelService) -> None:
        for _ in range(6):
            await service.prefill(row(50, CHUNK), 1)

    async def run() -> list[list[int]]:
        async with serving(4) as (service, target):
            drafts = FakeDrafts(target)
            async with held(service, target):
                tasks = [asyncio.ensure_future(stream(service, drafts, n)) for n in range(3)]
                tasks.append(asyncio.ensure_future(prompt(service)))
            await together(*tasks)
        return target.runs[1:]

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runs = [sorted(run) for run in runner.run(run()) if run[0] >= 0]
    assert runs == [[0, 1, 2, 50]] * 6 + [[0, 1, 2]] * (rounds - 6)


async def test_drafts_that_wait_together_are_one_job_before_the_next_run() -> None:
    async with serving(4) as (service, target):
        drafts = FakeDrafts(target)
        async with held(service, target):
            calls = [asyncio.ensure_future(service.decode(*asked(9)))]
            calls += [
                asyncio.ensure_future(service.draft(slot(n), drafts(n)))  # type: ignore[arg-type]
                for n in (1, 2, 3)
            ]
            await submitted()
        await together(*calls)
    assert target.runs[1:] == [[-1], [-2], [-3], [9]]


async def test_drafts_never_go_twice_past_a_row_that_waits() -> None:
    async with serving(4) as (service, target):
        drafts = FakeDrafts(target)

        async def restless() -> None:
            for _ in range(5):
                await service.draft(slot(), drafts(1))

        async with held(service, target):
            calls = [
                asyncio.ensure_future(restless()),
                asyncio.ensure_future(service.decode(*asked(9))),
            ]
            await submitted()
        await together(*calls)
    assert target.runs[1:] == [[-1], [9], [-1], [-1], [-1], [-1]]


async def test_a_failing_draft_fails_alone() -> None:
    async with serving(4) as (service, target):
        drafts = FakeDrafts(target)
        results = await asyncio.gather(
            service.draft(slot(1), drafts(1)),
            service.draft(slot(2), failing),
            service.draft(slot(3), drafts(3)),
            return_exceptions=True,
        )
        assert isinstance(results[0], Drafted)
        assert isinstance(results[2], Drafted)
        assert str(results[1]) == "the graph failed"
        assert (await service.decode(*asked(5))).result.greedy == [5]
        assert service.drafting(slot(2)) is None


async def test_a_cancelled_draft_that_waits_never_runs() -> None:
    async with serving(4) as (service, target):
        drafts = FakeDrafts(target)
        own = slot(1)
        async with held(service, target):
            call = asyncio.ensure_future(service.draft(own, drafts(1)))
            await submitted()
            call.cancel()
            await asyncio.wait([call])
            assert service.drafting(own) is None
        assert (await service.decode(*asked(5))).result.greedy == [5]
    assert target.runs[1:] == [[5]]


async def test_a_cancelled_draft_that_runs_is_known_until_it_ends() -> None:
    async with serving(4) as (service, target):
        drafts = FakeDrafts(target)
        own, other = slot(1), slot(2)
        drafts.gate.clear()
        calls = [asyncio.ensure_future(service.draft(own, drafts(1)))]
        calls.append(asyncio.ensure_future(service.draft(other, drafts(2))))
        await until(lambda: target.runs == [[-1]])
        calls[0].cancel()
        await asyncio.wait([calls[0]])
        assert calls[0].cancelled(), "at once, and not when the draft ends"
        running = service.drafting(own)
        assert running is not None
        assert not running.done()
        drafts.gate.set()
        assert (await calls[1]).draft.tokens == (2,)
        assert running.done()
        assert service.drafting(own) is service.drafting(other) is None


@pytest.mark.parametrize("overlap", [False, True])
async def test_closing_refuses_drafts_that_wait_and_ends_those_that_run(overlap: bool) -> None:
    async with serving(4, overlap=overlap) as (service, target):
        drafts = FakeDrafts(target)
        drafts.gate.clear()
        runs = asyncio.ensure_future(service.draft(slot(1), drafts(1)))
        await until(lambda: target.runs == [[-1]])
        waits = asyncio.ensure_future(service.draft(slot(2), drafts(2)))
        await submitted()
        closing = asyncio.ensure_future(service.close())
        await asyncio.sleep(0.01)
        assert not closing.done()
        drafts.gate.set()
        await closing
        assert (await asyncio.wait_for(runs, PATIENCE)).draft.tokens == (1,)
        for refused in (waits, service.draft(slot(3), drafts(3))):
            with pytest.raises(UserError) as error:
                await asyncio.wait_for(refused, PATIENCE)
            assert error.value.code == "draining"
    assert target.runs == [[-1]]


async def test_on_a_device_drafts_have_a_thread_of_their_own() -> None:
    """One request's draft runs while another's row does."""
    async with serving(4, overlap=True) as (service, target):
        drafts = FakeDrafts(target)
        target.hold()
        run = asyncio.ensure_future(service.decode(*asked(7)))
        await until(lambda: target.runs == [[7]])
        drafted = await asyncio.wait_for(service.draft(slot(), drafts(1)), PATIENCE)
        assert drafted.draft.tokens == (1,)
        assert not run.done()
        target.open()
        await run
        threads = await service.call(lambda: threading.current_thread().name)
    assert drafts.threads.isdisjoint({threads})
    assert not service._target.busy


async def test_on_a_device_no_chunk_slips_between_a_draft_and_its_row() -> None:
    async with serving(4, overlap=True) as (service, target):
        drafts = FakeDrafts(target)
        drafts.gate.clear()

        async def stream() -> None:
            await service.draft(slot(), drafts(1))
            await service.decode(*asked(3))

        streaming = asyncio.ensure_future(stream())
        await until(lambda: target.runs == [[-1]])
        chunk = asyncio.ensure_future(service.prefill(row(50, CHUNK), 1))
        await asyncio.sleep(0.01)
        assert target.runs == [[-1]], "the chunk waits for the row"
        drafts.gate.set()
        await together(streaming, chunk)
    assert target.runs == [[-1], [3, 50]]


@pytest.mark.parametrize("when", ["waiting", "running"])
async def test_on_a_device_a_chunk_does_not_wait_for_drafts_that_left(when: str) -> None:
    async with serving(4, overlap=True) as (service, target):
        drafts = FakeDrafts(target)
        drafts.gate.clear()
        call = asyncio.ensure_future(service.draft(slot(), drafts(1)))
        if when == "running":
            await until(lambda: target.runs == [[-1]])
        else:
            await asyncio.sleep(0)
        chunk = asyncio.ensure_future(service.prefill(row(50, CHUNK), 1))
        await asyncio.sleep(0)
        call.cancel()
        drafts.gate.set()
        await together(chunk)
    assert target.runs[-1] == [50]
