"""What a real engine tells its observer is what its answers say of themselves."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gateway.engine.requests import GenerationRequest, Speculation
from gateway.metrics.tallies import EngineTallies
from models.package import Package
from tests.engine_support import (
    OFF,
    Reference,
    ScriptedDrafter,
    TestEngine,
    ask,
    is_idle,
    make_prompt,
    read,
    running,
    until,
)

PROMPT = make_prompt(30)
EIGHT = Speculation(policy="fixed", length=8)


def observed(engine: TestEngine) -> EngineTallies:
    engine.observer = tallies = EngineTallies()
    return tallies


async def test_the_tallies_are_those_of_the_answers(
    tiny_package: Path, package: Package, reference: Reference
) -> None:
    answer = reference.answer(PROMPT, 40)
    every_third = [token if index % 3 else token + 1 for index, token in enumerate(answer)]
    async with running(tiny_package) as engine:
        tallies = observed(engine)
        vocabulary = package.manifest.target.vocab_size
        engine.drafter_of = lambda: ScriptedDrafter(every_third, vocabulary)
        drafted = await ask(engine, PROMPT, max_tokens=40, speculation=EIGHT)
        plain = await ask(engine, PROMPT, max_tokens=10, speculation=OFF)
    timings, others = drafted.finished.timings, plain.finished.timings
    assert tallies.draft_tokens == timings.draft_n > 0
    assert tallies.accepted_tokens == timings.draft_n_accepted > 0
    assert tallies.accepted_at == [accepted for _, accepted in timings.depths if accepted]
    assert sum(tallies.rounds.values()) == timings.rounds + others.rounds
    assert tallies.rounds["off", "none"] == others.rounds
    assert tallies.rounds["fixed", "scripted"] == tallies.drafts
    assert tallies.generated_tokens == 50
    assert tallies.prompt_tokens == 60
    assert tallies.cached_tokens == drafted.finished.usage.cached_tokens + (
        plain.finished.usage.cached_tokens
    )
    assert tallies.endings == {"length": 2}
    assert tallies.next.count == 48
    for total, ms in (
        (tallies.verify.sum, timings.verify_ms + others.verify_ms),
        (tallies.draft.sum, timings.draft_ms + others.draft_ms),
        (tallies.queue.sum, timings.queue_ms + others.queue_ms),
    ):
        assert total * 1e3 == pytest.approx(ms)
    assert tallies.first.sum * 1e3 == pytest.approx((timings.ttft_ms or 0) + (others.ttft_ms or 0))


async def test_answers_that_are_left_are_counted_as_far_as_they_came(tiny_package: Path) -> None:
    async with running(tiny_package) as engine:
        tallies = observed(engine)
        request = GenerationRequest(PROMPT, max_tokens=100, ignore_eos=True, speculation=OFF)
        async with engine.open(request) as generation:
            await anext(generation)
            await until(lambda: tallies.generated_tokens >= 3)
        assert tallies.endings == {"abandoned": 1}
        assert tallies.whole.count == 1
        async with engine.open(request) as generation:
            await anext(generation)
            generation.cancel()
            async for _ in generation:
                pass
        assert tallies.endings["cancelled"] == 1
        await until(lambda: is_idle(engine))


async def test_one_of_no_tokens_is_counted_by_how_it_ended(tiny_package: Path) -> None:
    """Its limit is reached from the beginning, but not until the prompt was read."""
    request = GenerationRequest(PROMPT, max_tokens=0, reuse_prefix=False, speculation=OFF)
    async with running(tiny_package) as engine:
        tallies = observed(engine)
        for cancelled in (False, True):
            engine.target.runs.clear()
            engine.target.gate.clear()
            async with engine.open(request) as generation:
                await until(lambda: len(engine.target.runs) == 1)
                if cancelled:
                    generation.cancel()
                    assert (await read(generation)).finished.reason == "cancelled"
            engine.target.gate.set()
            await until(lambda: is_idle(engine))
        assert tallies.endings == {"abandoned": 1, "cancelled": 1}
        async with engine.open(request) as generation:
            assert (await read(generation)).finished.reason == "length"
    assert tallies.endings == {"abandoned": 1, "cancelled": 1, "length": 1}


async def test_a_failure_is_counted(tiny_package: Path) -> None:
    async with running(tiny_package) as engine:
        tallies = observed(engine)
        engine.target.broken = lambda rows: True
        with pytest.raises(RuntimeError, match="the kernel failed"):
            await ask(engine, PROMPT)
        await asyncio.sleep(0)
    assert tallies.endings == {"failed": 1}


async def test_a_synthetic_acceptance_is_none(tiny_package: Path) -> None:
    async with running(tiny_package) as engine:
        tallies = observed(engine)
        await ask(engine, PROMPT, speculation=Speculation(rule="synthetic"))
    assert (tallies.draft_tokens, tallies.endings) == (0, {})
