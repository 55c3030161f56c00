"""The engine and its requests: what it refuses, who waits, what fails, what is left behind."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import random
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from gateway.engine.engine import Engine
from gateway.engine.requests import Delta, GenerationRequest, Speculation
from models.constraints.source import ConstraintSource
from models.errors import UserError
from models.package import Package, load_package
from models.sampling.parameters import Sampling
from tests.engine_support import (
    CONTEXT,
    MOST,
    OFF,
    Answered,
    Reference,
    TestEngine,
    ask,
    ask_at_once,
    build_engine,
    is_idle,
    label,
    make_prompt,
    read,
    running,
    until,
)
from tests.patience import PATIENCE

PROMPTS = tuple(make_prompt(length, seed=length) for length in (1, 2, 3, 12, 34, 71, 40, 20))
AUTO = Speculation()


@pytest.fixture(scope="module")
def expected(package: Package) -> dict[tuple[int, ...], list[int]]:
    reference = Reference(package)
    return {prompt: reference.answer(prompt, MOST) for prompt in PROMPTS}


class TestRefusals:
    """What a user did wrong is said when the request is opened, and nothing is left behind."""

    async def refused(self, path: Path, prompt: Sequence[int], **fields: object) -> UserError:
        async with running(path) as engine:
            with pytest.raises(UserError) as error:
                engine.open(GenerationRequest(tuple(prompt), **fields))  # type: ignore[arg-type]
            assert is_idle(engine)
            assert (await ask(engine, PROMPTS[3], max_tokens=2)).finished.reason == "length"
        return error.value

    @pytest.mark.parametrize("extra", [0, 1, 500])
    async def test_a_prompt_longer_than_the_context(self, tiny_package: Path, extra: int) -> None:
        error = await self.refused(tiny_package, make_prompt(CONTEXT + extra))
        assert (error.code, error.param) == ("context_length_exceeded", "input")
        assert str(CONTEXT + extra) in error.message
        assert f"holds {CONTEXT}" in error.message

    async def test_an_empty_prompt(self, tiny_package: Path) -> None:
        assert (await self.refused(tiny_package, ())).code == "invalid_prompt"

    @pytest.mark.parametrize("end", [0, 1])
    async def test_ids_outside_the_vocabulary(self, tiny_package: Path, end: int) -> None:
        vocab_size = load_package(tiny_package).manifest.target.vocab_size
        outside = (vocab_size, -1)[end]
        error = await self.refused(tiny_package, (1, outside, 2))
        assert error.code == "invalid_prompt"

    async def test_an_unknown_drafter(self, tiny_package: Path) -> None:
        error = await self.refused(tiny_package, (1, 2), speculation=Speculation("medusa"))
        assert (error.code, error.param) == ("unknown_drafter", "speculation.drafter")
        assert "medusa" in error.message
        assert "ngram, prediction, off" in error.message

    @pytest.mark.parametrize(
        ("name", "fields"),
        [
            ("max_tokens", {"max_tokens": -1}),
            ("prefill_chunk", {"prefill_chunk": 0}),
            ("prefill_chunk", {"prefill_chunk": -5}),
            ("speculation.length", {"speculation": Speculation(length=-1)}),
            ("logit_bias", {"sampling": Sampling(logit_bias=((100_000, 1.0),))}),
            ("stop_token_ids", {"stop_ids": (100_000,)}),
            ("stop", {"stop": ("",)}),
            ("min_tokens", {"sampling": Sampling(min_tokens=3), "max_tokens": 2}),
        ],
    )
    async def test_values_that_cannot_be(
        self, tiny_package: Path, name: str, fields: dict[str, object]
    ) -> None:
        """All of them: tests of the checks."""
        error = await self.refused(tiny_package, (1, 2), **fields)
        assert (error.code, error.param) == ("unsupported_value", name)

    async def test_trees_where_the_package_has_no_graphs_for_them(self, package: Package) -> None:
        target = dataclasses.replace(package.manifest.target, tree_graphs={})
        manifest = dataclasses.replace(package.manifest, target=target)
        engine = build_engine(dataclasses.replace(package, manifest=manifest))
        try:
            with pytest.raises(UserError) as error:
                engine.open(GenerationRequest((1, 2), speculation=Speculation(branches=2)))
        finally:
            await engine.close()
        assert (error.value.code, error.value.param) == (
            "unsupported_value",
            "speculation.branches",
        )

    async def test_new_requests_while_it_drains(self, tiny_package: Path) -> None:
        """Those that run and wait still get their answers."""
        async with running(tiny_package, slots=1) as engine:
            tasks = [asyncio.create_task(ask(engine, prompt)) for prompt in PROMPTS[:3]]
            await until(lambda: engine.status().waiting == 2)
            engine.drain()
            with pytest.raises(UserError) as error:
                engine.open(GenerationRequest((1, 2)))
            assert error.value.code == "draining"
            assert [len(said.ids) for said in await asyncio.gather(*tasks)] == [24] * 3


class TestQueue:
    async def test_requests_are_served_in_order_of_arrival(self, tiny_package: Path) -> None:
        served: list[int] = []

        async def one(engine: Engine, index: int) -> None:
            request = GenerationRequest(PROMPTS[index], max_tokens=3)
            async with engine.open(request) as generation:
                await anext(generation)
                served.append(index)
                await read(generation)

        async with running(tiny_package, slots=1) as engine, asyncio.timeout(PATIENCE):
            await asyncio.gather(*(one(engine, index) for index in range(7)))
        assert served == list(range(7))

    @pytest.mark.parametrize("queue", [0, 2])
    async def test_a_full_queue_is_refused_with_the_numbers(
        self, tiny_package: Path, queue: int
    ) -> None:
        async with running(tiny_package, slots=1, queue=queue) as engine:
            engine.target.gate.clear()
            tasks = [asyncio.create_task(ask(engine, PROMPTS[3])) for _ in range(1 + queue)]
            await until(lambda: engine.status().running == 1)
            await until(lambda: engine.status().waiting == queue)
            with pytest.raises(UserError) as error:
                engine.open(GenerationRequest((1, 2)))
            assert error.value.code == "queue_full"
            assert f"1 requests are running and {queue} are waiting" in error.value.message
            engine.target.gate.set()
            await asyncio.gather(*tasks)
            assert (await ask(engine, PROMPTS[3])).finished.reason == "length"

    async def test_requests_of_one_step_of_the_loop_are_refused_when_opened(
        self, tiny_package: Path
    ) -> None:
        async with running(tiny_package, slots=1, queue=1) as engine, AsyncExitStack() as stack:
            for _ in range(2):
                await stack.enter_async_context(engine.open(GenerationRequest((1, 2))))
            with pytest.raises(UserError, match="1 requests are running and 1 are waiting"):
                engine.open(GenerationRequest((1, 2)))
            await stack.aclose()
            assert is_idle(engine)
            assert (await ask(engine, PROMPTS[3])).finished.reason == "length"

    async def test_requests_opened_at_once_cannot_overfill_it(self, tiny_package: Path) -> None:
        async with running(tiny_package, slots=1, queue=1) as engine:
            results = await asyncio.gather(
                *(ask(engine, PROMPTS[3]) for _ in range(5)), return_exceptions=True
            )
            assert is_idle(engine)
        refused = [result for result in results if isinstance(result, UserError)]
        assert [error.code for error in refused] == ["queue_full"] * 3
        assert sum(isinstance(result, Answered) for result in results) == 2

    async def test_a_request_that_left_the_queue_makes_room(self, tiny_package: Path) -> None:
        async with running(tiny_package, slots=1, queue=1) as engine:
            engine.target.gate.clear()
            first, second = (asyncio.create_task(ask(engine, PROMPTS[3])) for _ in range(2))
            await until(lambda: engine.status().waiting == 1)
            second.cancel()
            await asyncio.wait([second])
            third = asyncio.create_task(ask(engine, PROMPTS[4]))
            await until(lambda: engine.status().waiting == 1)
            engine.target.gate.set()
            assert len((await first).ids) == len((await third).ids) == 24


class TestFailures:
    async def test_a_failing_run_fails_its_requests_only(
        self, tiny_package: Path, expected: dict[tuple[int, ...], list[int]]
    ) -> None:
        poison = 211
        async with running(tiny_package, slots=2) as engine:
            engine.target.broken = lambda rows: any(poison in row.tokens for row in rows)
            calls = [
                ask(engine, prompt, max_tokens=MOST)
                for prompt in (PROMPTS[3], (5, poison, 6), PROMPTS[4], PROMPTS[5])
            ]
            results = await asyncio.gather(*calls, return_exceptions=True)
            assert is_idle(engine)
            failed = [result for result in results if isinstance(result, RuntimeError)]
            assert str(results[1]) == "the kernel failed"
            # Whoever shared the run failed with it, and nobody else did.
            assert 1 <= len(failed) <= 2
            for prompt in PROMPTS[3:6]:
                assert (await ask(engine, prompt, max_tokens=MOST)).ids == expected[prompt]
        for prompt, result in zip(PROMPTS[4:6], results[2:], strict=True):
            assert isinstance(result, Answered)
            assert result.ids == expected[prompt]

    async def test_a_failing_decode_leaves_a_slot_that_can_be_continued(
        self, tiny_package: Path, expected: dict[tuple[int, ...], list[int]]
    ) -> None:
        prompt = PROMPTS[4]
        async with running(tiny_package, slots=1) as engine:
            engine.target.broken = lambda rows: len(engine.target.runs) == 8
            with pytest.raises(RuntimeError, match="kernel"):
                await ask(engine, prompt, max_tokens=MOST, speculation=OFF)
            said = await ask(engine, prompt, max_tokens=MOST)
        assert said.ids == expected[prompt]
        assert said.finished.usage.cached_tokens == len(prompt) - 1

    async def test_a_failing_drafter_fails_its_request_only(
        self, tiny_package: Path, expected: dict[tuple[int, ...], list[int]]
    ) -> None:
        async with running(tiny_package, slots=1) as engine:
            engine.drafter_of = lambda: (_ for _ in ()).throw(LookupError("no such head"))
            with pytest.raises(LookupError, match="no such head"):
                await ask(engine, PROMPTS[3])
            engine.drafter_of = None
            assert is_idle(engine)
            assert (await ask(engine, PROMPTS[3], max_tokens=MOST)).ids == expected[PROMPTS[3]]

    async def test_closing_fails_what_still_runs_and_waits(self, tiny_package: Path) -> None:
        async with running(tiny_package, slots=1) as engine:
            engine.target.gate.clear()
            tasks = [asyncio.create_task(ask(engine, prompt)) for prompt in PROMPTS[3:6]]
            await until(lambda: engine.status().waiting == 2)
            closing = asyncio.create_task(engine.close())
            await asyncio.sleep(0)
            engine.target.gate.set()
            async with asyncio.timeout(PATIENCE):
                await closing
                results = await asyncio.gather(*tasks, return_exceptions=True)
            assert is_idle(engine)
        assert [getattr(result, "code", result) for result in results] == ["draining"] * 3


class TestCancellation:
    async def test_others_go_on_when_one_leaves(
        self, tiny_package: Path, expected: dict[tuple[int, ...], list[int]]
    ) -> None:
        async with running(tiny_package) as engine:
            others = [
                asyncio.create_task(ask(engine, prompt, max_tokens=MOST)) for prompt in PROMPTS[:3]
            ]
            async with engine.open(GenerationRequest(PROMPTS[5], ignore_eos=True)) as generation:
                await anext(generation)
            answers = await asyncio.gather(*others)
        assert [said.ids for said in answers] == [expected[prompt] for prompt in PROMPTS[:3]]

    @pytest.mark.parametrize("speculation", [OFF, AUTO], ids=label)
    async def test_200_leave_memory_and_slots_as_they_were(
        self,
        tiny_package: Path,
        expected: dict[tuple[int, ...], list[int]],
        speculation: Speculation,
    ) -> None:
        """vllm#15506: bounded with speculation on and off alike."""
        async with running(tiny_package) as engine, asyncio.timeout(60):
            await leave_at_random(engine, speculation, count=200, seed=1)
            assert is_idle(engine)
            before = resident_bytes()
            await leave_at_random(engine, speculation, count=200, seed=2)
            assert is_idle(engine)
            grown = resident_bytes() - before
            answers = await ask_at_once(engine, PROMPTS, speculation=speculation)
        assert [said.ids for said in answers] == [expected[prompt] for prompt in PROMPTS]
        assert grown < 8 << 20


async def leave_at_random(
    engine: TestEngine, speculation: Speculation, count: int, seed: int
) -> None:
    """`count` requests, six at once, each left or cancelled at a moment drawn with `seed`."""
    draw = random.Random(seed)
    turns = asyncio.Semaphore(6)

    async def one(prompt: tuple[int, ...], events: int, ticks: int, cancels: bool) -> None:
        request = GenerationRequest(prompt, ignore_eos=True, speculation=speculation)
        async with turns, engine.open(request) as generation:
            for _ in range(ticks):
                await asyncio.sleep(0)
            for _ in range(events):
                await anext(generation)
            if cancels:
                generation.cancel()
                assert (await read(generation)).finished.reason == "cancelled"

    # Prompts of a few families, so that prefixes are continued and copied.
    prompts = [(*draw.choice(PROMPTS[3:7]), *draw.choices(range(50), k=3)) for _ in range(count)]
    await asyncio.gather(
        *(
            one(prompt, draw.randrange(6), draw.randrange(12), draw.random() < 0.5)
            for prompt in prompts
        )
    )


def resident_bytes() -> int:
    gc.collect()
    used: int = psutil.Process().memory_info().rss
    return used


async def test_what_a_request_leaves_open_is_sampled_as_the_package_advises(
    tiny_package: Path,
) -> None:
    async with running(tiny_package) as engine:
        manifest = engine.package.manifest
        engine.package = dataclasses.replace(
            engine.package,
            manifest=dataclasses.replace(manifest, sampling={"temperature": 0.6, "top_k": 5.0}),
        )
        asked = Sampling(top_k=9, seed=1)
        for named, sampled in (
            (None, asked),
            (frozenset({"top_k", "seed"}), Sampling(temperature=0.6, top_k=9, seed=1)),
            (frozenset({"seed"}), Sampling(temperature=0.6, top_k=5, seed=1)),
        ):
            generation = engine.open(GenerationRequest((1,), sampling=asked, named=named))
            assert generation.request.sampling == sampled
            async with generation:
                pass
        manifest = dataclasses.replace(manifest, sampling={"repetition_penalty": 1.2, "top_k": 5.0})
        engine.package = dataclasses.replace(engine.package, manifest=manifest)
        form = ConstraintSource("regex", "[a-z]+")
        for constraint, penalty in ((None, 1.2), (form, 1.0)):
            request = GenerationRequest((1,), constraint=constraint, named=frozenset())
            generation = engine.open(request)
            assert generation.request.sampling.repetition_penalty == penalty
            assert generation.request.sampling.top_k == 5


async def test_status_counts_what_runs_and_waits(tiny_package: Path) -> None:
    async with running(tiny_package, slots=2) as engine:
        engine.target.gate.clear()
        tasks = [asyncio.create_task(ask(engine, prompt)) for prompt in PROMPTS[2:5]]
        await until(lambda: engine.status().waiting == 1)
        status = engine.status()
        assert (status.running, status.free_slots, status.kv_tokens) == (2, 0, 0)
        engine.target.gate.set()
        await asyncio.gather(*tasks)
        held = sum(slot.length for slot in engine.pool_slots)
        assert engine.status().kv_tokens == held > 24


async def test_a_prompt_joins_streams_without_stopping_them(tiny_package: Path) -> None:
    """Every run while the prompt is prefilled carries the stream's token and one chunk."""
    async with running(tiny_package, busy_chunk=8) as engine:
        request = GenerationRequest(PROMPTS[3], ignore_eos=True, speculation=OFF)
        async with engine.open(request) as stream:
            assert isinstance(await anext(stream), Delta)
            before = len(engine.target.runs)
            await ask(engine, make_prompt(64, seed=99), max_tokens=0)
            joined = [run for run in engine.target.runs[before:] if len(run) == 2]
            assert [sorted(len(row.tokens) for row in run) for run in joined] == [[1, 8]] * 8
