"""The package's own drafters in the engine: the answers are the target's, whoever drafts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from gateway.engine.requests import GenerationRequest, Speculation
from models.drafters.bound import ChainGraph, Entries
from models.drafters.learned import LearnedModels
from models.package import Package
from models.sampling.parameters import Sampling
from models.slots import Slot
from tests.drafters_support import CPU
from tests.engine_support import (
    GREEDY,
    Reference,
    TestEngine,
    ask,
    is_idle,
    kv_bytes,
    make_prompt,
    read,
    running,
)

KINDS = ("eagle3", "draft-model", "mtp", "self-speculative", "medusa")
HOT = Sampling(temperature=1.1, top_p=0.9, seed=21)
COUNT = 30
PROMPTS = [make_prompt(20 + 7 * seed, seed=seed) for seed in range(4)]


def fixed(kind: str, **fields: object) -> Speculation:
    return Speculation(**{"drafter": kind, "policy": "fixed", "length": 4, **fields})  # type: ignore[arg-type]


@pytest.fixture
async def engine(drafting: Package) -> AsyncIterator[TestEngine]:
    async with running(drafting.path, learned=LearnedModels(drafting, CPU), slots=4) as engine:
        yield engine


@pytest.mark.parametrize("sampling", [GREEDY, HOT], ids=["greedy", "sampled"])
@pytest.mark.parametrize("kind", KINDS)
async def test_answers_are_those_without_drafts(
    kind: str, sampling: Sampling, engine: TestEngine, reference: Reference
) -> None:
    """Four at once, two of which draft otherwise."""
    drafters = [fixed(kind), fixed(kind), fixed("ngram"), fixed("eagle3")]
    calls = [
        ask(engine, prompt, max_tokens=COUNT, speculation=drafter, sampling=sampling)
        for prompt, drafter in zip(PROMPTS, drafters, strict=True)
    ]
    answers = await asyncio.gather(*calls)
    for prompt, said in zip(PROMPTS, answers, strict=True):
        assert said.ids == reference.answer(prompt, COUNT, sampling)
    assert answers[0].finished.timings.by_drafter[kind].draft_n > 0
    assert is_idle(engine)
    for slot in engine.pool_slots:
        assert slot.exact_length == slot.length
        assert kv_bytes(slot, slot.length) == reference.kv(slot.tokens.tolist())


async def test_measuring_a_drafter_leaves_rows_that_are_yet_to_be_read(
    engine: TestEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs the target, which overwrites them: `call` does not wait until they were read."""
    monkeypatch.delattr(type(engine.service), "call")
    await engine.drafters.load("eagle3")
    (status,) = (each for each in engine.status().drafters if each.name == "eagle3")
    assert status.problem is None
    assert sorted(status.run_ms) == list(range(1, status.longest + 1))


@pytest.mark.parametrize("kind", ["eagle3", "draft-model", "medusa"])
async def test_trees_keep_the_answer(kind: str, engine: TestEngine, reference: Reference) -> None:
    """In fp32, where a tree's rounding decides nothing."""
    tree = fixed(kind, length=8, branches=3)
    calls = [ask(engine, prompt, max_tokens=COUNT, speculation=tree) for prompt in PROMPTS]
    answers = await asyncio.gather(*calls)
    for prompt, said in zip(PROMPTS, answers, strict=True):
        assert said.ids == reference.answer(prompt, COUNT)
    assert any(row.parents is not None for run in engine.target.runs for row in run)


@pytest.mark.parametrize("kind", ["eagle3", "draft-model", "mtp"])
async def test_the_next_turn_feeds_the_drafter_only_what_is_new(
    kind: str, engine: TestEngine, reference: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    """vllm#53670, #54360: prefix hits lost for drafters that read target features."""
    fed: list[int] = []
    real = ChainGraph.run

    def run(self: ChainGraph, slot: Slot, entries: Entries) -> None:
        fed.append(entries.ids.size)
        real(self, slot, entries)

    monkeypatch.setattr(ChainGraph, "run", run)
    prompt = PROMPTS[3]
    said = await ask(engine, prompt, max_tokens=COUNT, speculation=fixed(kind))
    assert max(fed) >= len(prompt)
    fed.clear()
    following = (*prompt, *said.ids, 5, 6, 7)
    again = await ask(engine, following, max_tokens=COUNT, speculation=fixed(kind))
    assert again.ids == reference.answer(following, COUNT)
    assert max(fed) <= 3 + 4 + 3
    # The same beginning in another slot, while this one answers: copied, not drafted again.
    fed.clear()
    other = (*following, *again.ids[:10], 9)
    both = await asyncio.gather(
        *(
            ask(engine, tokens, max_tokens=COUNT, speculation=fixed(kind))
            for tokens in ((*following, *again.ids, 8), other)
        )
    )
    assert both[1].ids == reference.answer(other, COUNT)
    assert max(fed) <= 3 + 4 + 3


@pytest.mark.parametrize("kind", KINDS)
async def test_a_request_that_leaves_while_drafting_leaves_nothing_wrong(
    kind: str, engine: TestEngine, reference: Reference
) -> None:
    request = GenerationRequest(
        PROMPTS[0], ignore_eos=True, max_tokens=100, speculation=fixed(kind)
    )
    for leave in range(5):
        async with engine.open(request) as generation:
            seen = 0
            async for _ in generation:
                seen += 1
                if seen > leave:
                    break
        prompt = (*PROMPTS[0][: 5 + leave], *PROMPTS[1])
        said = await ask(engine, prompt, max_tokens=8, speculation=fixed(kind))
        assert said.ids == reference.answer(prompt, 8)
    async with engine.open(request) as generation:
        whole = await read(generation)
    assert whole.ids == reference.answer(PROMPTS[0], 100)
