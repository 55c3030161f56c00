"""What requests of one key find of another's: nothing, unless the engine lets keys share."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gateway.engine.requests import GenerationRequest, Speculation
from models.drafters.learned import LearnedModels
from models.package import Package
from tests.drafters_support import CPU
from tests.engine_support import (
    OFF,
    Answered,
    Reference,
    TestEngine,
    ask,
    make_prompt,
    read,
    running,
    until,
)

PROMPT = make_prompt(60)
ALL = len(PROMPT) - 1
"""Tokens that a repeated prompt finds: the last one's logits are needed."""


async def said(engine: TestEngine, key: str | None, **fields: object) -> Answered:
    return await ask(engine, PROMPT, **{"max_tokens": 4, "key": key, "speculation": OFF, **fields})


def cached(answered: Answered) -> int:
    return answered.finished.usage.cached_tokens


async def test_a_key_finds_its_own_prompt_and_nobody_elses(
    tiny_package: Path, reference: Reference
) -> None:
    keys = ("ann", "bob", "ann", "bob", None, None)
    async with running(tiny_package) as engine:
        answers = [await said(engine, key) for key in keys]
    assert [cached(each) for each in answers] == [0, 0, ALL, ALL, 0, ALL]
    assert [each.ids for each in answers] == [reference.answer(PROMPT, 4)] * len(keys)


async def test_another_ones_prompt_is_run_whole(tiny_package: Path) -> None:
    """No fewer runs tell of it either."""
    async with running(tiny_package) as engine:
        runs = []
        for key in ("ann", "bob"):
            engine.target.runs.clear()
            await said(engine, key, prefill_chunk=20)
            runs.append([len(row.tokens) for run in engine.target.runs for row in run])
    assert runs[0] == runs[1] == [20, 20, 20, 1, 1, 1]


@pytest.mark.parametrize(("keys", "found"), [(("ann", "bob"), 0), (("ann", "ann"), ALL)])
async def test_what_is_being_answered_is_copied_for_its_key_alone(
    tiny_package: Path, keys: tuple[str, str], found: int
) -> None:
    async with running(tiny_package) as engine:
        request = GenerationRequest(PROMPT, ignore_eos=True, key=keys[0], speculation=OFF)
        async with engine.open(request) as generation:
            await anext(generation)
            assert cached(await said(engine, keys[1])) == found


async def test_a_prompt_that_is_only_read_is_its_keys(tiny_package: Path) -> None:
    async with running(tiny_package) as engine:
        for key, found in (("ann", 0), ("bob", 0), ("ann", ALL)):
            assert cached(await said(engine, key, max_tokens=0)) == found


async def test_an_answer_is_continued_by_its_key_alone(tiny_package: Path) -> None:
    async with running(tiny_package) as engine:
        first = await said(engine, "ann", max_tokens=20)
        following = (*PROMPT, *first.ids, 5)
        for key, found in (("bob", 0), ("ann", len(following) - 2)):
            again = await ask(engine, following, max_tokens=1, key=key, speculation=OFF)
            assert cached(again) == found


async def test_choices_share_what_their_own_key_wrote(tiny_package: Path) -> None:
    async with running(tiny_package) as engine:
        await said(engine, "ann")
        request = GenerationRequest(PROMPT, max_tokens=3, key="bob", speculation=OFF)
        first, second = engine.open_choices(request, 2)
        async with first, second:
            assert [cached(each) for each in (await read(first), await read(second))] == [0, ALL]


async def test_who_waited_for_a_slot_finds_no_more(tiny_package: Path) -> None:
    async with running(tiny_package, slots=1) as engine:
        engine.target.gate.clear()
        tasks = [asyncio.create_task(said(engine, key)) for key in ("ann", "bob", "cid", "cid")]
        await until(lambda: engine.status().waiting == 3)
        engine.target.gate.set()
        assert [cached(each) for each in await asyncio.gather(*tasks)] == [0, 0, 0, ALL]


@pytest.mark.parametrize("kind", ["eagle3", "draft-model", "mtp"])
async def test_drafters_read_another_ones_prompt_anew(
    drafting: Package, reference: Reference, kind: str
) -> None:
    """Their K/V, and the features they read, are kept with the slot."""
    speculation = Speculation(kind, "fixed", 4)
    async with running(drafting.path, learned=LearnedModels(drafting, CPU), slots=2) as engine:
        answers = [
            await said(engine, key, max_tokens=20, speculation=speculation)
            for key in ("ann", "bob", "ann")
        ]
    assert [cached(each) for each in answers] == [0, 0, ALL]
    assert [each.ids for each in answers] == [reference.answer(PROMPT, 20)] * 3
    timings = [each.finished.timings for each in answers]
    assert timings[0].draft_n > 0
    assert timings[0].by_drafter == timings[1].by_drafter


async def test_keys_may_share(tiny_package: Path, reference: Reference) -> None:
    async with running(tiny_package, share_prefixes=True) as engine:
        answers = [await said(engine, key) for key in ("ann", "bob", None)]
    assert [cached(each) for each in answers] == [0, ALL, ALL]
    assert [each.ids for each in answers] == [reference.answer(PROMPT, 4)] * 3


async def test_keys_take_slots_from_one_another_as_before(tiny_package: Path) -> None:
    """Whose was unused longest goes, whoever asks."""
    prompts = [make_prompt(40, seed=seed) for seed in range(3)]
    found = []
    async with running(tiny_package, slots=2) as engine:
        for key, index in (("ann", 0), ("bob", 1), ("bob", 2), ("bob", 1), ("ann", 0)):
            answered = await ask(engine, prompts[index], max_tokens=2, key=key, speculation=OFF)
            found.append(cached(answered))
    assert found == [0, 0, 0, 39, 0]
