"""The target service: what it packs into a run, in which order, and what a failure reaches."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import numpy as np
import pytest
import uvloop

from gateway.engine.costs.run_costs import RunCosts
from gateway.engine.costs.shape import RunShape
from gateway.engine.policies.offers import Offer, whole
from gateway.engine.service import ModelService
from gateway.engine.waiting import Verified
from models.draft import Draft
from models.errors import UserError
from models.slots import Slot
from models.target import Row, RowResult
from tests.engine_support import until
from tests.patience import HOLD, PATIENCE

DECODE, CHUNK = (1, 2), (3,) * 9


class FakeTarget:
    """Records the slots of every run; a result names its slot. Runs can be held and broken."""

    def __init__(self) -> None:
        self.runs: list[list[int]] = []
        self.broken: set[int] = set()
        self._held = False
        self._permits = threading.Semaphore(0)

    def hold(self) -> None:
        """From now on every run waits for a permit."""
        self._held = True

    def let(self, runs: int = 1) -> None:
        self._permits.release(runs)

    def open(self) -> None:
        self._held = False
        self._permits.release(100)

    def __call__(self, rows: Sequence[Row]) -> list[RowResult]:
        self.runs.append([row.slot.index for row in rows])
        assert not self._held or self._permits.acquire(timeout=HOLD)
        if self.broken & set(self.runs[-1]):
            raise RuntimeError("out of device memory")
        return [result_of(row.slot.index) for row in rows]


def result_of(index: int) -> RowResult:
    return RowResult(
        top_values=np.zeros((1, 1), np.float32),
        top_ids=np.array([[index]], np.int64),
        logsumexp=np.zeros(1, np.float32),
    )


def row(index: int, tokens: tuple[int, ...] = DECODE) -> Row:
    return Row(Slot(index, 1000, ()), tokens, logits=1)


def asked(index: int, tokens: tuple[int, ...] = DECODE) -> tuple[Slot, int, Offer]:
    """A row whose draft is verified whatever it costs."""
    return Slot(index, 1000, ()), tokens[0], whole(Draft(tokens[1:]))


@asynccontextmanager
async def serving(
    most_rows: int, *, overlap: bool = False, costs: RunCosts | None = None
) -> AsyncIterator[tuple[ModelService, FakeTarget]]:
    target = FakeTarget()
    service = ModelService(target, most_rows, overlap=overlap, costs=costs)
    try:
        yield service, target
    finally:
        target.open()
        await service.close()


async def submitted() -> None:
    """Let all tasks get as far as they can without another run."""
    for _ in range(3):
        await asyncio.sleep(0)


@asynccontextmanager
async def held(service: ModelService, target: FakeTarget) -> AsyncIterator[None]:
    """A run is in progress throughout the block; what is submitted inside waits together."""
    target.hold()
    first = asyncio.ensure_future(service.decode(*asked(99)))
    await until(lambda: target.runs == [[99]])
    yield
    await submitted()
    target.open()
    await first


async def gathered(*calls: Awaitable[Verified]) -> list[Verified]:
    async with asyncio.timeout(PATIENCE):
        return list(await asyncio.gather(*calls))


async def test_a_caller_gets_its_own_result_and_the_runs_size() -> None:
    async with serving(4) as (service, target):
        async with held(service, target):
            calls = [asyncio.ensure_future(service.decode(*asked(index))) for index in (2, 0, 1)]
        answers = await gathered(*calls)
    assert [answer.result.greedy for answer in answers] == [[2], [0], [1]]
    assert {answer.shape[:2] for answer in answers} == {(3, 6)}
    assert all(answer.run_ms > 0 for answer in answers)
    assert target.runs[1:] == [[2, 0, 1]]


class Observed(RunCosts):
    """Notes the shapes that it was told the times of, and learns nothing of them."""

    def __init__(self, measured: dict[int, float]) -> None:
        super().__init__(RunCosts.by_width(measured).coefficients)
        self.shapes: list[RunShape] = []

    def observe(self, shape: RunShape, milliseconds: float) -> None:
        assert milliseconds > 0
        self.shapes.append(shape)


async def test_a_run_tells_its_time_once_unless_a_chunk_was_in_it() -> None:
    costs = Observed({2: 10.0, 32: 10.0})
    async with serving(4, costs=costs) as (service, target):
        async with held(service, target):
            calls = [asyncio.ensure_future(service.decode(*asked(index))) for index in range(3)]
        await gathered(*calls)
    async with serving(4, costs=costs) as (service, target):
        async with held(service, target):
            decode = asyncio.ensure_future(service.decode(*asked(1)))
            chunk = asyncio.ensure_future(service.prefill(row(2, CHUNK), 0))
        await gathered(decode, chunk)
    one = RunShape(1, 2)
    assert costs.shapes == [one, RunShape(3, 6), one], "the last run had a chunk in it"


async def test_the_rows_of_a_run_divide_what_it_verifies() -> None:
    """Up to four tokens a place is cheap, beyond as dear as plain decoding: the run takes what is
    likeliest, of whichever row, and answers say what was verified."""
    costs = Observed({2: 10.0, 4: 13.0, 5: 23.0, 32: 293.0})
    sure = Offer(Draft((5, 6)), range(2), (0.95, 0.9))
    doubtful = Offer(Draft((7, 8)), range(2), (0.4, 0.2))
    async with serving(4, costs=costs) as (service, target):
        async with held(service, target):
            calls = [
                asyncio.ensure_future(service.decode(Slot(index, 1000, ()), 1, offer))
                for index, offer in enumerate((doubtful, sure))
            ]
        answers = await gathered(*calls)
        (alone,) = await gathered(service.decode(Slot(0, 1000, ()), 1, doubtful))
    assert [answer.draft.tokens for answer in answers] == [(), (5, 6)]
    assert answers[0].shape == RunShape(2, 4)
    assert alone.draft.tokens == (7,), "alone it has the place that pads the run"


async def test_without_costs_all_that_is_offered_is_verified() -> None:
    offer = Offer(Draft((5, 6)), range(2), (0.0, 0.0))
    async with serving(4) as (service, _):
        (answer,) = await gathered(service.decode(Slot(0, 1000, ()), 1, offer))
    assert answer.draft.tokens == (5, 6)


async def test_a_caller_knows_whether_a_tree_was_in_its_run() -> None:
    forked = Slot(5, 1000, ())
    forked.commit((1,))
    tree = (forked, 1, whole(Draft((2, 3), (-1, -1))))
    async with serving(4) as (service, target):
        async with held(service, target):
            calls = [asyncio.ensure_future(service.decode(*each)) for each in (tree, asked(2))]
        together = await gathered(*calls)
        (alone,) = await gathered(service.decode(*asked(2)))
    assert [answer.shape.tree for answer in together] == [True, True]
    assert alone.shape == RunShape(rows=1, tokens=2)
    assert together[0].shape == RunShape(rows=2, tokens=5, past=1, work=3, tree=True)


async def test_rows_beyond_the_graph_wait_in_order_of_arrival() -> None:
    async with serving(4) as (service, target):
        async with held(service, target):
            calls = [asyncio.ensure_future(service.decode(*asked(index))) for index in range(6)]
        await gathered(*calls)
    assert target.runs[1:] == [[0, 1, 2, 3], [4, 5]]


async def test_decodes_go_first_and_one_chunk_rides_along() -> None:
    async with serving(4) as (service, target):
        async with held(service, target):
            calls = [
                *(asyncio.ensure_future(service.prefill(row(10 + n, CHUNK), n)) for n in range(2)),
                *(asyncio.ensure_future(service.decode(*asked(n))) for n in range(4)),
            ]
        await gathered(*calls)
    assert target.runs[1:] == [[0, 1, 2, 10], [3, 11]]


async def test_the_earliest_prompt_is_prefilled_first() -> None:
    async with serving(2) as (service, target):
        async with held(service, target):
            calls = [
                asyncio.ensure_future(service.prefill(row(order, CHUNK), order))
                for order in (7, 5, 6)
            ]
        await gathered(*calls)
    assert target.runs[1:] == [[5], [6], [7]]


async def test_in_a_graph_of_one_row_decodes_and_chunks_take_turns() -> None:
    async with serving(1) as (service, target):
        async with held(service, target):
            calls = [
                *(asyncio.ensure_future(service.decode(*asked(n))) for n in range(3)),
                *(asyncio.ensure_future(service.prefill(row(10 + n, CHUNK), n)) for n in range(3)),
            ]
        await gathered(*calls)
    assert target.runs[1:] in ([[0], [10], [1], [11], [2], [12]], [[10], [0], [11], [1], [12], [2]])


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_requests_that_decode_together_stay_together(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """It rests on the order in which a loop resumes: the gateway's is uvloop."""
    rounds = 20

    async def stream(service: ModelService, index: int) -> None:
        for _ in range(rounds):
            await service.decode(*asked(index))

    async def four_streams() -> list[list[int]]:
        async with serving(4) as (service, target):
            async with held(service, target):
                tasks = [asyncio.ensure_future(stream(service, index)) for index in range(4)]
            async with asyncio.timeout(PATIENCE):
                await asyncio.gather(*tasks)
        return target.runs[1:]

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runs = runner.run(four_streams())
    assert [sorted(run) for run in runs] == [[0, 1, 2, 3]] * rounds


async def test_a_latecomer_joins_the_next_run() -> None:
    async def twice(service: ModelService) -> Verified:
        await service.decode(*asked(0))
        return await service.decode(*asked(0))

    async with serving(4) as (service, target):
        target.hold()
        first = asyncio.ensure_future(twice(service))
        await until(lambda: target.runs == [[0]])
        late = asyncio.ensure_future(service.decode(*asked(1)))
        await submitted()
        target.open()
        await gathered(first, late)
    assert [sorted(run) for run in target.runs] == [[0], [0, 1]]


async def test_a_prompt_is_not_starved_by_streams_nor_streams_by_a_prompt() -> None:
    async def decode(service: ModelService, index: int) -> None:
        for _ in range(10):
            await service.decode(*asked(index))

    async def prefill(service: ModelService) -> None:
        for _ in range(10):
            await service.prefill(row(50, CHUNK), 1)

    async with serving(2) as (service, target):
        async with held(service, target):
            tasks = [asyncio.ensure_future(decode(service, index)) for index in range(3)]
            tasks.append(asyncio.ensure_future(prefill(service)))
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*tasks)
    runs = target.runs[1:]
    assert all(50 in run for run in runs[:10]), "a chunk in every run while the prompt lasts"
    # The one other place goes round, so no stream waits more than two runs.
    assert [run[0] for run in runs[:9]] == [0, 1, 2] * 3


async def test_a_cancelled_row_leaves_the_queue() -> None:
    async with serving(4) as (service, target):
        async with held(service, target):
            calls = [asyncio.ensure_future(service.decode(*asked(index))) for index in range(3)]
            chunk = asyncio.ensure_future(service.prefill(row(10, CHUNK), 0))
            await asyncio.sleep(0)
            calls[1].cancel()
            chunk.cancel()
        await asyncio.wait([*calls, chunk])
    assert target.runs[1:] == [[0, 2]]
    assert calls[1].cancelled()
    assert chunk.cancelled()


async def test_cancelling_a_row_that_runs_does_not_disturb_its_company() -> None:
    async with serving(4) as (service, target):
        target.hold()
        first = asyncio.ensure_future(service.decode(*asked(99)))
        await until(lambda: target.runs == [[99]])
        calls = [asyncio.ensure_future(service.decode(*asked(index))) for index in range(2)]
        await submitted()
        target.let(1)
        await first
        await until(lambda: target.runs == [[99], [0, 1]])
        calls[0].cancel()
        await asyncio.wait([calls[0]])
        assert calls[0].cancelled(), "at once, and not when the run ends"
        target.open()
        assert (await gathered(calls[1]))[0].result.greedy == [1]
        assert (await gathered(service.decode(*asked(7))))[0].result.greedy == [7]


async def test_a_failing_run_fails_its_rows_only_and_the_service_goes_on() -> None:
    async with serving(2) as (service, target):
        target.broken = {1}
        async with held(service, target):
            calls = [asyncio.ensure_future(service.decode(*asked(index))) for index in range(4)]
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert [str(result) for result in results[:2]] == ["out of device memory"] * 2
        assert all(isinstance(result, RuntimeError) for result in results[:2])
        assert all(isinstance(result, Verified) for result in results[2:])
        assert (await gathered(service.decode(*asked(5))))[0].result.greedy == [5]
    assert target.runs[1:] == [[0, 1], [2, 3], [5]]


async def test_calls_run_on_the_workers_thread_in_the_order_they_were_made() -> None:
    order: list[str] = []
    threads: set[str] = set()

    def note(name: str) -> Callable[[], str]:
        def work() -> str:
            threads.add(threading.current_thread().name)
            order.append(name)
            return name

        return work

    async with serving(2) as (service, _):
        calls = [service.call(note(name)) for name in ("a", "b", "c")]
        assert list(await asyncio.gather(*calls)) == ["a", "b", "c"]
    assert order == ["a", "b", "c"]
    assert len(threads) == 1
    assert threading.current_thread().name not in threads


async def test_closing_waits_for_the_run_and_refuses_what_waits() -> None:
    async with serving(1) as (service, target):
        async with held(service, target):
            waiting = asyncio.ensure_future(service.decode(*asked(1)))
            await asyncio.sleep(0)
            closing = asyncio.ensure_future(service.close())
            await asyncio.sleep(0.01)
            assert not closing.done(), "the run is still in progress"
        await closing
        for refused in (waiting, service.decode(*asked(2)), service.prefill(row(3), 0)):
            with pytest.raises(UserError) as error:
                await asyncio.wait_for(refused, PATIENCE)
            assert error.value.code == "draining"
        with pytest.raises(UserError):
            await service.call(lambda: None)
    assert target.runs == [[99]]


async def test_a_turn_waits_until_the_last_runs_rows_were_read() -> None:
    """It may run the target, and the next run overwrites them."""
    order: list[str] = []

    async def decode(service: ModelService) -> None:
        await service.decode(*asked(1))
        order.append("read")

    async with serving(4) as (service, target):
        target.hold()
        reading = asyncio.ensure_future(decode(service))
        await submitted()
        turn = asyncio.ensure_future(service.turn(lambda: order.append("turn")))
        await submitted()
        later = asyncio.ensure_future(service.decode(*asked(2)))
        await submitted()
        target.open()
        await asyncio.gather(reading, turn, later)
        assert order == ["read", "turn"]
        assert target.runs == [[1], [2]]
        assert await service.turn(lambda: 7) == 7


async def test_a_turn_that_fails_tells_its_caller_alone() -> None:
    async with serving(4) as (service, _):
        with pytest.raises(ZeroDivisionError):
            await service.turn(lambda: 1 // 0)
        assert (await service.decode(*asked(1))).result.greedy == [1]
    with pytest.raises(UserError, match="shutting down"):
        await service.turn(lambda: None)


async def test_a_turn_that_nobody_waits_for_is_not_taken() -> None:
    taken: list[str] = []
    async with serving(4) as (service, target):
        async with held(service, target):
            turn = asyncio.ensure_future(service.turn(lambda: taken.append("turn")))
            await submitted()
            turn.cancel()
        assert (await service.decode(*asked(1))).result.greedy == [1]
    assert turn.cancelled()
    assert not taken


async def test_closing_refuses_turns_that_wait() -> None:
    async with serving(4) as (service, target):
        async with held(service, target):
            turn = asyncio.ensure_future(service.turn(lambda: None))
            await submitted()
            closing = asyncio.ensure_future(service.close())
            await submitted()
        with pytest.raises(UserError, match="shutting down"):
            await turn
        await closing
