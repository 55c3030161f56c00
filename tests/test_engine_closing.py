"""Whoever waits for an engine that closes is told so: nobody hangs, and nothing else is said."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from gateway.engine.closing import outcome_of
from gateway.engine.constraints import Constraints
from gateway.engine.requests import GenerationRequest, Speculation
from models.errors import UserError
from models.slots import Lease
from tests.constraints_support import regex
from tests.engine_support import OFF, TestEngine, ask, is_idle, make_prompt, read, running, until
from tests.learned_support import PLAIN_PROMPT, FakeLearned, eagle
from tests.patience import HOLD, PATIENCE
from tests.test_engine_constraints import FakeCompiler

PROMPT = make_prompt(40)
TREE = Speculation("ngram", "fixed", 4, branches=2)


async def codes(waiting: Sequence[Awaitable[object]]) -> list[object]:
    """Of the errors that they fail with, soon."""
    async with asyncio.timeout(PATIENCE):
        results = await asyncio.gather(*waiting, return_exceptions=True)
    return [getattr(result, "code", result) for result in results]


async def closed(
    engine: TestEngine,
    waiting: Sequence[Awaitable[object]],
    loading: threading.Event | None = None,
) -> list[object]:
    """What those who wait are told; the target runs again as soon as closing has begun. What is
    `loading` is waited for: the process would go on to its end beside it."""
    closing = asyncio.create_task(engine.close())
    await asyncio.sleep(0)
    engine.target.gate.set()
    told = await codes(waiting)
    if loading is not None:
        await asyncio.wait([closing], timeout=0.1)
        assert not closing.done()
        loading.set()
    async with asyncio.timeout(PATIENCE):
        await closing
    return told


async def test_who_is_answered_and_who_waits_for_a_slot(tiny_package: Path) -> None:
    async with running(tiny_package, slots=2) as engine:
        tasks = [asyncio.create_task(ask(engine, PROMPT, max_tokens=None)) for _ in range(2)]
        await until(lambda: len(engine.target.runs) > 4)
        engine.target.gate.clear()
        tasks += [asyncio.create_task(ask(engine, PROMPT, key=key)) for key in "aab"]
        await until(lambda: engine.status().waiting == 3)
        assert await closed(engine, tasks) == ["draining"] * 5
        assert is_idle(engine)


async def test_who_waits_for_a_slot_that_is_not_given_back(tiny_package: Path) -> None:
    async with running(tiny_package, slots=1) as engine:
        lease = await engine.acquire(PROMPT, True)
        tasks = [asyncio.create_task(ask(engine, PROMPT)) for _ in range(2)]
        await until(lambda: engine.status().waiting == 2)
        assert await closed(engine, tasks) == ["draining"] * 2
        engine.release(lease.slot)
        assert await codes([engine.acquire(PROMPT, True)]) == ["draining"]


async def test_whose_prompt_waits_for_its_chunk(tiny_package: Path) -> None:
    """Behind another one's: one chunk a run."""
    async with running(tiny_package, slots=3) as engine:
        engine.target.gate.clear()
        tasks = [
            asyncio.create_task(ask(engine, make_prompt(40, seed=seed), reuse_prefix=False))
            for seed in range(3)
        ]
        await until(lambda: engine.service.waiting_prefills == 2)
        assert await closed(engine, tasks) == ["draining"] * 3
        assert is_idle(engine)


async def test_who_waits_for_the_first_of_several_choices(tiny_package: Path) -> None:
    async with running(tiny_package, slots=2) as engine:
        engine.target.gate.clear()
        first, second, third = engine.open_choices(GenerationRequest(PROMPT), 3)
        async with first, second, third:
            await until(lambda: len(engine.target.runs) == 1)
            readers = [asyncio.create_task(read(each)) for each in (first, second, third)]
            assert await closed(engine, readers) == ["draining"] * 3
        assert is_idle(engine)


async def test_whose_prefix_is_being_copied(
    tiny_package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was queued is done; what comes behind it is refused."""
    copying, gate, fill = threading.Event(), threading.Event(), Lease.fill

    def slow(lease: Lease) -> None:
        copying.set()
        assert gate.wait(HOLD)
        fill(lease)

    monkeypatch.setattr(Lease, "fill", slow)
    async with running(tiny_package, slots=2) as engine:
        # The first holds its slot without a run: the copy has the thread for itself.
        held = await engine.acquire(PROMPT, True)
        held.slot.commit(PROMPT)
        task = asyncio.create_task(ask(engine, (*PROMPT, 7)))
        await until(copying.is_set)
        closing = asyncio.create_task(engine.close())
        await asyncio.sleep(0)
        gate.set()
        assert await codes([task]) == ["draining"]
        await closing
        engine.release(held.slot)
        assert is_idle(engine)


async def test_who_waits_for_the_graphs_of_trees(
    tiny_package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loading, gate = threading.Event(), threading.Event()

    def slow() -> None:
        loading.set()
        assert gate.wait(HOLD)

    async with running(tiny_package) as engine:
        monkeypatch.setattr(engine.target, "load_trees", slow)
        tasks = [asyncio.create_task(ask(engine, PROMPT, speculation=TREE)) for _ in range(2)]
        await until(loading.is_set)
        assert await closed(engine, [*tasks, engine.load_trees()], gate) == ["draining"] * 3
        loading.clear()
        assert await codes([engine.load_trees()]) == ["draining"]
        assert not loading.is_set(), "nothing is begun any more"
        assert is_idle(engine)


async def test_who_waits_for_the_probing_of_trees(tiny_package: Path) -> None:
    async with running(tiny_package) as engine:
        engine.target.gate.clear()
        task = asyncio.create_task(ask(engine, PROMPT, speculation=TREE))
        await until(lambda: len(engine.target.runs) == 1)
        assert await closed(engine, [task]) == ["draining"]


async def test_who_waits_for_the_graphs_of_a_drafter(tiny_package: Path) -> None:
    learned, gate = FakeLearned(), threading.Event()
    learned.loading = lambda: gate.wait(HOLD) or None  # type: ignore[assignment, func-returns-value]
    async with running(tiny_package, learned=learned) as engine:
        tasks = [
            asyncio.create_task(ask(engine, PLAIN_PROMPT, speculation=eagle(3))) for _ in range(2)
        ]
        await until(lambda: learned.loads == ["eagle3"])
        assert await closed(engine, tasks, gate) == ["draining"] * 2
        assert await codes([engine.drafters.load("eagle3")]) == ["draining"]
        assert learned.loads == ["eagle3"], "nothing is begun any more"
        assert engine.status().drafters[1].failures == 0
        assert is_idle(engine)


async def test_who_waits_for_the_measuring_of_a_drafter(tiny_package: Path) -> None:
    async with running(tiny_package, learned=FakeLearned()) as engine:
        engine.target.gate.clear()
        task = asyncio.create_task(ask(engine, PLAIN_PROMPT, speculation=eagle(3)))
        await until(lambda: len(engine.target.runs) == 1)
        assert await closed(engine, [task]) == ["draining"]
        assert engine.status().drafters[1].failures == 0


@pytest.mark.parametrize("text", ["a", "slow one"])
async def test_who_waits_for_a_constraint(tiny_package: Path, text: str) -> None:
    compiler = FakeCompiler()
    compiler.gate.clear()
    compiler.slow_gate.clear()
    async with running(tiny_package) as engine:
        await engine.constraints.close()
        engine.constraints = Constraints(compiler)
        tasks = [
            asyncio.create_task(ask(engine, PROMPT, constraint=regex(text), ignore_eos=False)),
            asyncio.create_task(
                ask(engine, PROMPT, constraint=regex("b"), key="k", ignore_eos=False)
            ),
            asyncio.create_task(engine.compile(regex(text))),
            asyncio.create_task(engine.guide(regex("c"))),
        ]
        await until(lambda: text in compiler.compiled)
        closing = asyncio.create_task(engine.close())
        told = await codes(tasks)
        compiler.gate.set()
        compiler.slow_gate.set()
        await asyncio.wait_for(closing, PATIENCE)
        assert told == ["draining"] * 4
        assert is_idle(engine)


async def test_who_is_cancelled_meanwhile_is_cancelled(tiny_package: Path) -> None:
    """By its own reader, not by the end of the engine."""
    learned, gate = FakeLearned(), threading.Event()
    learned.loading = lambda: gate.wait(HOLD) or None  # type: ignore[assignment, func-returns-value]
    async with running(tiny_package, learned=learned) as engine:
        request = GenerationRequest(PLAIN_PROMPT, speculation=eagle(3))
        async with engine.open(request) as generation:
            await until(lambda: learned.loads == ["eagle3"])
            generation.cancel()
            closing = asyncio.create_task(engine.close())
            assert (await read(generation)).finished.reason == "cancelled"
            gate.set()
            await closing


class TestOutcome:
    """What several wait for."""

    @pytest.fixture
    def shared(self) -> asyncio.Future[int]:
        return asyncio.get_running_loop().create_future()

    async def waiting(self, shared: asyncio.Future[int]) -> list[asyncio.Task[int]]:
        tasks = [asyncio.create_task(outcome_of(shared)) for _ in range(2)]
        await asyncio.sleep(0)
        return tasks

    @pytest.mark.parametrize(
        ("end", "told"),
        [
            (lambda shared: shared.set_result(7), 7),
            (
                lambda shared: shared.set_exception(UserError("no.", code="out_of_memory")),
                "out_of_memory",
            ),
            (lambda shared: shared.cancel(), "draining"),
        ],
    )
    async def test_all_are_told(
        self, end: Callable[[asyncio.Future[int]], object], told: object
    ) -> None:
        shared = asyncio.get_running_loop().create_future()
        tasks = await self.waiting(shared)
        end(shared)
        assert await codes(tasks) == [told] * 2

    async def test_who_leaves_ends_nothing(self) -> None:
        shared = asyncio.get_running_loop().create_future()
        leaving, staying = await self.waiting(shared)
        leaving.cancel()
        await asyncio.wait([leaving])
        assert leaving.cancelled()
        shared.set_result(7)
        assert await staying == 7


async def test_after_the_end_requests_are_refused(tiny_package: Path) -> None:
    async with running(tiny_package) as engine:
        opened = engine.open(GenerationRequest(PROMPT, speculation=OFF))
        await engine.close()
        async with opened:
            assert await codes([read(opened)]) == ["draining"]
        with pytest.raises(UserError) as error:
            engine.open(GenerationRequest(PROMPT))
    assert error.value.code == "draining"
