"""Greedy output is identical to the bit, whatever is drafted and whatever runs beside it.

llama.cpp#25618, mlx-lm#1470, vllm#39273: outputs are compared, never only acceptance.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from gateway.engine.requests import Delta, GenerationRequest, Speculation
from models.package import Package
from tests.engine_support import (
    MOST,
    OFF,
    Reference,
    ask,
    ask_at_once,
    is_idle,
    kv_bytes,
    label,
    make_prompt,
    read,
    running,
)

PROMPTS = tuple(make_prompt(length, seed=length) for length in (1, 2, 3, 12, 34, 71, 40, 20))
LONG = make_prompt(163, seed=163)
FIXED = tuple(Speculation(policy="fixed", length=length) for length in range(1, 9))
AUTO = Speculation()


@pytest.fixture(scope="module")
def expected(package: Package) -> dict[tuple[int, ...], list[int]]:
    reference = Reference(package)
    return {prompt: reference.answer(prompt, MOST) for prompt in PROMPTS}


@pytest.mark.parametrize("speculation", [OFF, *FIXED, AUTO], ids=label)
async def test_identical_with_any_draft_length(
    tiny_package: Path,
    expected: dict[tuple[int, ...], list[int]],
    speculation: Speculation,
) -> None:
    """llama.cpp#25618, mlx-lm#1470: greedy output diverged with speculation on."""
    drafted = accepted = 0
    async with running(tiny_package) as engine:
        for prompt, answer in expected.items():
            said = await ask(engine, prompt, max_tokens=MOST, speculation=speculation)
            assert said.ids == answer
            drafted += said.finished.timings.draft_n
            accepted += said.finished.timings.draft_n_accepted
    if speculation.policy == "off":
        assert drafted == 0
    else:
        assert 0 < accepted < drafted, "both outcomes must have been tried"


@pytest.mark.parametrize("speculation", [OFF, FIXED[2], AUTO], ids=label)
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8])
async def test_identical_with_any_number_at_once(
    tiny_package: Path,
    expected: dict[tuple[int, ...], list[int]],
    count: int,
    speculation: Speculation,
) -> None:
    prompts = PROMPTS[-count:]
    async with running(tiny_package) as engine:
        answers = await ask_at_once(engine, prompts, speculation=speculation)
        assert is_idle(engine)
        packed = {len(run) for run in engine.target.runs}
    assert [said.ids for said in answers] == [expected[prompt] for prompt in prompts]
    assert max(packed) == min(count, 4), "they were verified together"


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 64, 129])
async def test_identical_with_any_prefill_chunk(
    tiny_package: Path, package: Package, expected: dict[tuple[int, ...], list[int]], chunk: int
) -> None:
    prompts = (*PROMPTS[3:6], LONG)
    answers = {**expected, LONG: Reference(package).answer(LONG, MOST)}
    async with running(tiny_package) as engine:
        together = await ask_at_once(engine, prompts, prefill_chunk=chunk)
        alone = await ask(
            engine, LONG, max_tokens=MOST, prefill_chunk=chunk, reuse_prefix=False, speculation=OFF
        )
    assert [said.ids for said in together] == [answers[prompt] for prompt in prompts]
    assert alone.ids == answers[LONG]


@pytest.mark.parametrize("rows", [(1,), (1, 2)])
@pytest.mark.parametrize("speculation", [OFF, AUTO], ids=label)
async def test_identical_with_fewer_graphs(
    tiny_package: Path,
    expected: dict[tuple[int, ...], list[int]],
    rows: tuple[int, ...],
    speculation: Speculation,
) -> None:
    async with running(tiny_package, rows=rows) as engine:
        answers = await ask_at_once(engine, PROMPTS[:5], speculation=speculation)
        assert max(len(run) for run in engine.target.runs) == rows[-1]
    assert [said.ids for said in answers] == [expected[prompt] for prompt in PROMPTS[:5]]


async def test_identical_with_every_request_speculating_in_its_own_way(
    tiny_package: Path, expected: dict[tuple[int, ...], list[int]]
) -> None:
    """mlx-vlm#1155: rows of different widths and lengths in one run."""
    ways = [OFF, FIXED[7], AUTO, FIXED[0], FIXED[3], OFF, AUTO, FIXED[1]]
    async with running(tiny_package) as engine:
        calls = [
            ask(engine, prompt, max_tokens=MOST, speculation=way, prefill_chunk=5 + index)
            for index, (prompt, way) in enumerate(zip(PROMPTS, ways, strict=True))
        ]
        answers = await asyncio.gather(*calls)
    assert [said.ids for said in answers] == [expected[prompt] for prompt in PROMPTS]


@pytest.mark.parametrize("speculation", [OFF, FIXED[4], AUTO], ids=label)
async def test_identical_with_a_cold_warm_or_copied_prefix(
    tiny_package: Path, package: Package, speculation: Speculation
) -> None:
    reference = Reference(package)
    prompt = PROMPTS[6]
    async with running(tiny_package, slots=3) as engine:
        cold = await ask(engine, prompt, max_tokens=MOST, speculation=speculation)
        warm = await ask(engine, prompt, max_tokens=MOST, speculation=speculation)
        further = (*prompt, *cold.ids, 7, 8, 9)
        continued = await ask(engine, further, max_tokens=MOST, speculation=speculation)
        forked = (*prompt[:25], 9, 8, 7)
        copied = await ask(engine, forked, max_tokens=MOST, speculation=speculation)
        again = await ask(
            engine, further, max_tokens=MOST, speculation=speculation, reuse_prefix=False
        )
    assert cold.ids == warm.ids == reference.answer(prompt, MOST)
    assert continued.ids == again.ids == reference.answer(further, MOST)
    assert copied.ids == reference.answer(forked, MOST)
    cached = [said.finished.usage.cached_tokens for said in (cold, warm, continued, copied)]
    assert cached == [0, len(prompt) - 1, len(prompt) + MOST - 1, 25]
    assert again.finished.usage.cached_tokens == 0


async def test_identical_with_a_prefix_copied_from_a_request_that_runs(
    tiny_package: Path, package: Package
) -> None:
    reference = Reference(package)
    prompts = [(*PROMPTS[5], *range(tail)) for tail in range(1, 6)]
    async with running(tiny_package, slots=3) as engine:
        request = GenerationRequest(PROMPTS[5], max_tokens=100, ignore_eos=True)
        async with engine.open(request) as first:
            await anext(first)
            answers = await ask_at_once(engine, prompts)
            await read(first)
    assert [said.ids for said in answers] == [reference.answer(p, MOST) for p in prompts]
    cached = [said.finished.usage.cached_tokens for said in answers]
    assert min(cached) >= len(PROMPTS[5])


@pytest.mark.parametrize("seed", [1, 2])
async def test_identical_in_a_seeded_mixture_of_everything(
    tiny_package: Path, package: Package, seed: int
) -> None:
    """Also what was left or cancelled half-way is a beginning of the right answer, and every slot's
    K/V is afterwards that of the tokens it says it holds."""
    draw = random.Random(seed)
    reference = Reference(package)
    async with running(tiny_package, slots=3, prefill_chunk=20, busy_chunk=5) as engine:
        turns = asyncio.Semaphore(7)

        async def one(prompt: tuple[int, ...], way: Speculation, events: int) -> list[int]:
            request = GenerationRequest(prompt, max_tokens=MOST, ignore_eos=True, speculation=way)
            ids: list[int] = []
            async with turns, engine.open(request) as generation:
                async for event in generation:
                    ids += event.ids if isinstance(event, Delta) else ()
                    events -= 1
                    if events <= 0:
                        break
            return ids

        prompts = [
            (*base[: draw.randrange(1, len(base))], *draw.choices(range(50), k=draw.randrange(3)))
            for base in draw.choices(PROMPTS[3:7], k=60)
        ]
        ways = draw.choices([OFF, AUTO, *FIXED], k=60)
        events = draw.choices([1, 2, 5, 1000], k=60)
        async with asyncio.timeout(60):
            answers = await asyncio.gather(*map(one, prompts, ways, events))
        assert is_idle(engine)
        for slot in engine.pool_slots:
            assert slot.length > 0
            assert kv_bytes(slot, slot.length) == reference.kv(slot.tokens.tolist())
    for prompt, ids in zip(prompts, answers, strict=True):
        assert ids == reference.answer(prompt, len(ids))
    assert {1, MOST} < {len(ids) for ids in answers}
