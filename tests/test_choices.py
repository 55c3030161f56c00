"""Several answers to one prompt: it is prefilled once, and nobody waits for one that failed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from gateway.engine.choices import SharedPrompt
from gateway.engine.generation import Generation
from gateway.engine.requests import GenerationRequest, PromptScored, Speculation
from models.errors import UserError
from models.package import Package
from models.sampling.noise import choice_seed
from models.sampling.parameters import Sampling
from tests.engine_support import (
    Answered,
    Reference,
    TestEngine,
    ask,
    is_idle,
    make_prompt,
    read,
    running,
    until,
)
from tests.patience import PATIENCE

PROMPT = make_prompt(60)
HOT = Sampling(temperature=1.0, seed=5)


def request_of(prompt: Sequence[int] = PROMPT, **fields: object) -> GenerationRequest:
    known: dict[str, object] = {"max_tokens": 20, "ignore_eos": True, "sampling": HOT, **fields}
    return GenerationRequest(tuple(prompt), **known)  # type: ignore[arg-type]


async def answers(choices: Sequence[Generation]) -> list[Answered | BaseException]:
    """All of them, entered at once and read one after another."""
    async with AsyncExitStack() as stack, asyncio.timeout(PATIENCE):
        for choice in choices:
            await stack.enter_async_context(choice)
        return list(await asyncio.gather(*map(read, choices), return_exceptions=True))


def answered(results: Sequence[Answered | BaseException]) -> list[Answered]:
    assert all(isinstance(result, Answered) for result in results), results
    return [result for result in results if isinstance(result, Answered)]


def prefilled(engine: TestEngine) -> int:
    """Prompt tokens that were run; what decodes is one token wide here."""
    return sum(len(row.tokens) for run in engine.target.runs for row in run if len(row.tokens) > 1)


OFF = Speculation("off", "off")


@pytest.mark.parametrize("slots", [1, 2, 4])
@pytest.mark.parametrize("n", [1, 2, 3, 7])
async def test_every_choice_is_the_answer_of_its_seed(
    tiny_package: Path, package: Package, n: int, slots: int
) -> None:
    """Also with more choices than slots."""
    reference = Reference(package)
    seeds = [choice_seed(5, index) for index in range(n)]
    assert seeds[0] == 5
    async with running(tiny_package, slots=slots) as engine:
        choices = engine.open_choices(request_of(speculation=OFF), n)
        assert [choice.request.sampling.seed for choice in choices] == seeds
        said = answered(await answers(choices))
        assert is_idle(engine)
        assert prefilled(engine) < len(PROMPT) + 4 * n, "the prompt was prefilled once"
    for index, choice in enumerate(said):
        expected = reference.answer(PROMPT, 20, Sampling(temperature=1.0, seed=seeds[index]))
        assert choice.ids == expected
        assert choice.finished.usage.cached_tokens == (len(PROMPT) - 1 if index else 0)
    assert len({tuple(choice.ids) for choice in said}) == n


async def test_unseeded_choices_share_a_fresh_seed(tiny_package: Path) -> None:
    async with running(tiny_package) as engine:
        opened = engine.open_choices(request_of(sampling=Sampling(temperature=1.0)), 2)
        first, second = (choice.request.sampling.seed for choice in opened)
        assert first is not None
        assert second == choice_seed(first, 1)
        await answers(opened)


async def test_the_prompt_is_scored_once_for_all(tiny_package: Path) -> None:
    async with running(tiny_package) as engine:
        request = request_of(prompt_logprobs=True, top_logprobs=1, speculation=OFF)
        said = answered(await answers(engine.open_choices(request, 3)))
        assert prefilled(engine) < len(PROMPT) + 8
    assert said[0].scored is not None
    assert len(said[0].scored.logprobs) == len(PROMPT)
    assert [choice.scored for choice in said[1:]] == [said[0].scored] * 2


async def test_when_the_first_fails_the_others_answer(tiny_package: Path, package: Package) -> None:
    async with running(tiny_package, slots=2) as engine:
        engine.target.broken = lambda rows: len(engine.target.runs) == 1
        request = request_of(prompt_logprobs=True)
        first, *others = await answers(engine.open_choices(request, 3))
        assert is_idle(engine)
    assert str(first) == "the kernel failed"
    reference = Reference(package)
    for index, choice in enumerate(answered(others), start=1):
        seed = choice_seed(5, index)
        assert choice.ids == reference.answer(PROMPT, 20, Sampling(temperature=1.0, seed=seed))
        assert choice.scored is not None, "scored by each itself"


@pytest.mark.parametrize("leaves", [False, True])
async def test_when_the_first_is_cancelled_the_others_answer(
    tiny_package: Path, leaves: bool
) -> None:
    async with running(tiny_package, slots=2) as engine, asyncio.timeout(PATIENCE):
        engine.target.gate.clear()
        first, second = engine.open_choices(request_of(), 2)
        async with second:
            async with first:
                await until(lambda: len(engine.target.runs) == 1)
                assert engine.status().running == 1, "the second waits without a slot"
                if not leaves:
                    first.cancel()
                    assert (await read(first)).finished.reason == "cancelled"
            engine.target.gate.set()
            assert len((await read(second)).ids) == 20
        assert is_idle(engine)


async def test_the_first_may_be_cancelled_before_it_begins(tiny_package: Path) -> None:
    async with running(tiny_package) as engine:
        choices = engine.open_choices(request_of(), 3)
        choices[0].cancel()
        said = answered(await answers(choices))
        assert is_idle(engine)
    assert [len(choice.ids) for choice in said] == [0, 20, 20]
    assert said[0].finished.reason == "cancelled"


async def test_the_first_may_be_left_before_it_begins(tiny_package: Path) -> None:
    async with running(tiny_package) as engine, asyncio.timeout(PATIENCE):
        first, second = engine.open_choices(request_of(), 2)
        async with second:
            async with first:
                pass
            assert len((await read(second)).ids) == 20


async def test_one_that_waits_for_the_first_can_be_cancelled(tiny_package: Path) -> None:
    async with running(tiny_package, slots=1, queue=2) as engine, asyncio.timeout(PATIENCE):
        engine.target.gate.clear()
        first, second = engine.open_choices(request_of(), 2)
        async with first:
            async with second:
                await until(lambda: len(engine.target.runs) == 1)
                second.cancel()
                assert (await read(second)).finished.reason == "cancelled"
            engine.target.gate.set()
            assert len((await read(first)).ids) == 20
        assert is_idle(engine)
        assert len((await ask(engine, PROMPT)).ids) == 24


class TestQueue:
    async def test_more_than_fit_are_refused_before_any_starts(self, tiny_package: Path) -> None:
        async with running(tiny_package, slots=2, queue=1) as engine:
            with pytest.raises(UserError) as error:
                engine.open_choices(request_of(), 4)
            assert error.value.code == "queue_full"
            assert "4 more do not fit into 3 places" in error.value.message
            assert engine.target.runs == []
            assert len(answered(await answers(engine.open_choices(request_of(), 3)))) == 3

    async def test_their_places_are_taken_from_the_beginning(self, tiny_package: Path) -> None:
        """Those that wait for the first have neither slot nor place in the queue yet."""
        async with running(tiny_package, slots=2, queue=1) as engine, AsyncExitStack() as stack:
            engine.target.gate.clear()
            choices = engine.open_choices(request_of(), 3)
            for choice in choices:
                await stack.enter_async_context(choice)
            await until(lambda: len(engine.target.runs) == 1)
            with pytest.raises(UserError) as error:
                engine.open(request_of())
            assert error.value.code == "queue_full"
            assert "2 requests are running and 1 are waiting" in error.value.message
            engine.target.gate.set()
            async with asyncio.timeout(PATIENCE):
                said = await asyncio.gather(*map(read, choices))
            assert [len(choice.ids) for choice in said] == [20] * 3
            assert is_idle(engine)


async def test_a_prompt_is_settled_once() -> None:
    prompt = SharedPrompt()
    waiting = asyncio.ensure_future(prompt.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    scored = PromptScored((None,))
    prompt.settle(scored)
    prompt.settle(None)
    assert await waiting is scored
    assert await prompt.wait() is scored
