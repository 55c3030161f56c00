"""Generations as their consumers see them: merged deltas, and four ways to be cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from gateway.engine.deltas import merge
from gateway.engine.generation import Generation
from gateway.engine.marks import RoundTrace, TokenMark
from gateway.engine.requests import Delta, Finished, GenerationRequest, TokenLogprob
from models.errors import UserError
from models.package import Package
from models.slots import Slot
from models.tokenizer import StreamDecoder, Tokenizer
from tests.engine_support import (
    OFF,
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

PROMPT = make_prompt(30)
OTHER = make_prompt(25, seed=7)


@pytest.fixture(scope="module")
def answer(package: Package) -> list[int]:
    return Reference(package).answer(PROMPT, 100)


@pytest.fixture(scope="module")
def other_answer(package: Package) -> list[int]:
    return Reference(package).answer(OTHER, 24)


def opened(engine: TestEngine, prompt: Sequence[int] = PROMPT, most: int = 100) -> Generation:
    request = GenerationRequest(tuple(prompt), max_tokens=most, ignore_eos=True, speculation=OFF)
    return engine.open(request)


def test_merged_deltas_add_up() -> None:
    one, two, three = (TokenLogprob(token, -token) for token in (1, 2, 3))
    marks = [TokenMark(text, round_, 0.5) for text, round_ in (("a", 1), ("b", 2), ("c", 2))]
    traces = [RoundTrace(number, 1.0, 2.0, 3.0, 4, 1) for number in (1, 2)]
    first = Delta("a", (1,), ("target",), 1, (one,), 0, tuple(marks[:1]), tuple(traces[:1]))
    second = Delta(
        "bc",
        (2, 3),
        ("ngram", "target"),
        2,
        (two, three),
        4,
        tuple(marks[1:]),
        tuple(traces[1:]),
    )
    empty = Delta("d", (), (), 5, verified=3)
    assert merge([first]) is first
    assert merge([first, second, empty]) == Delta(
        "abcd",
        (1, 2, 3),
        ("target", "ngram", "target"),
        5,
        (one, two, three),
        7,
        tuple(marks),
        tuple(traces),
    )


async def test_a_consumer_that_never_reads_does_not_hold_the_answer_up(
    tiny_package: Path, answer: list[int]
) -> None:
    async with running(tiny_package) as engine, opened(engine) as generation:
        await asyncio.sleep(0)
        await until(lambda: is_idle(engine))
        events = [event async for event in generation]
    tokenizer: Tokenizer = engine.tokenizer
    merged, finished = events
    assert isinstance(merged, Delta)
    assert list(merged.ids) == answer
    assert merged.sources == ("target",) * 100
    assert merged.text == tokenizer.decode(answer, skip_special_tokens=True)
    assert isinstance(finished, Finished)
    assert finished.timings.rounds == merged.round == 99


async def test_a_slow_consumer_gets_fewer_and_longer_deltas(
    tiny_package: Path, answer: list[int]
) -> None:
    async with running(tiny_package) as engine, opened(engine) as generation:
        deltas = []
        async for event in generation:
            if isinstance(event, Delta):
                deltas.append(event)
                await five_more_runs(engine)
    assert 1 < len(deltas) < 50
    assert [token for delta in deltas for token in delta.ids] == answer


async def five_more_runs(engine: TestEngine) -> None:
    before = len(engine.target.runs)
    await until(lambda: len(engine.target.runs) >= before + 5 or is_idle(engine))


async def test_a_reader_sees_every_round_as_it_comes(tiny_package: Path, answer: list[int]) -> None:
    async with running(tiny_package) as engine, opened(engine, most=10) as generation:
        engine.target.seconds = 0.01
        seen = [event.ids async for event in generation if isinstance(event, Delta)]
    assert seen == [(token,) for token in answer[:10]]


async def test_nothing_follows_the_end(tiny_package: Path) -> None:
    async with running(tiny_package) as engine, opened(engine, most=3) as generation:
        await read(generation)
        for _ in range(2):
            with pytest.raises(StopAsyncIteration):
                await anext(generation)
        generation.cancel()
        with pytest.raises(StopAsyncIteration):
            await anext(generation)


async def test_leaving_the_block_frees_the_slot_within_a_round(
    tiny_package: Path, other_answer: list[int]
) -> None:
    async with running(tiny_package, slots=1) as engine:
        async with opened(engine) as generation:
            await anext(generation)
            runs = len(engine.target.runs)
        assert is_idle(engine)
        await asyncio.sleep(0.05)
        assert len(engine.target.runs) <= runs + 2, "the run in progress, and no other"
        assert (await ask(engine, OTHER)).ids == other_answer


async def test_an_error_in_the_block_frees_the_slot_and_is_the_consumers(
    tiny_package: Path,
) -> None:
    async with running(tiny_package, slots=1) as engine:
        with pytest.raises(ZeroDivisionError):
            await fail_in_block(engine)
        assert is_idle(engine)


async def fail_in_block(engine: TestEngine) -> None:
    async with opened(engine) as generation:
        await anext(generation)
        raise ZeroDivisionError


async def test_cancelling_the_consumers_task_frees_the_slot(tiny_package: Path) -> None:
    async def consume(engine: TestEngine) -> None:
        async with opened(engine) as generation:
            async for _ in generation:
                pass

    async with running(tiny_package, slots=1) as engine:
        task = asyncio.create_task(consume(engine))
        await until(lambda: len(engine.target.runs) > 3)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        await until(lambda: is_idle(engine))


async def test_cancel_ends_the_iterator_with_what_was_said(
    tiny_package: Path, answer: list[int]
) -> None:
    async with running(tiny_package, slots=1) as engine, opened(engine) as generation:
        first = await anext(generation)
        assert isinstance(first, Delta)
        generation.cancel()
        generation.cancel()
        rest = await read(generation)
        assert is_idle(engine)
    said = [*first.ids, *rest.ids]
    assert said == answer[: len(said)]
    assert len(said) < 100
    assert rest.finished.reason == "cancelled"
    assert rest.finished.usage.completion_tokens == len(said)
    assert rest.finished.usage.prompt_tokens == len(PROMPT)


async def test_cancel_gives_what_was_held_back(tiny_package: Path, answer: list[int]) -> None:
    """Half a stop string is no stop; what is counted was given."""
    async with running(tiny_package, slots=1) as engine:
        text = StreamDecoder(engine.tokenizer).push(answer)
        request = GenerationRequest(
            PROMPT, max_tokens=100, ignore_eos=True, speculation=OFF, stop=(f"{text}...",)
        )
        async with engine.open(request) as generation:
            await until(lambda: len(engine.target.runs) > 30)
            generation.cancel()
            said = await read(generation)
    assert len(said.ids) >= 29
    assert said.ids == answer[: len(said.ids)]
    assert said.text == StreamDecoder(engine.tokenizer).push(said.ids)
    assert len(said.deltas) == 1, "nothing was given before"
    assert said.finished.usage.completion_tokens == len(said.ids)
    assert (said.finished.reason, said.finished.stop) == ("cancelled", None)


async def test_cancel_after_the_end_changes_nothing(tiny_package: Path, answer: list[int]) -> None:
    async with running(tiny_package) as engine, opened(engine, most=5) as generation:
        await asyncio.sleep(0)
        await until(lambda: is_idle(engine))
        generation.cancel()
        said = await read(generation)
    assert (said.ids, said.finished.reason) == (answer[:5], "length")


@pytest.mark.parametrize("entered", [False, True])
async def test_cancelled_before_it_began(tiny_package: Path, entered: bool) -> None:
    """A task cancelled before its first step never runs: its consumer must not wait for it."""
    async with running(tiny_package, slots=1) as engine:
        generation = opened(engine)
        if not entered:
            generation.cancel()
        async with generation, asyncio.timeout(PATIENCE):
            if entered:
                generation.cancel()
            said = await read(generation)
        assert (said.ids, said.finished.reason) == ([], "cancelled")
        assert engine.target.runs == []
        assert is_idle(engine)


async def test_left_before_it_began(tiny_package: Path) -> None:
    async with running(tiny_package, slots=1) as engine:
        async with opened(engine):
            pass
        assert is_idle(engine)
        assert engine.target.runs == []


async def test_cancelled_while_it_waits_for_a_slot(tiny_package: Path, answer: list[int]) -> None:
    async with running(tiny_package, slots=1) as engine:
        engine.target.gate.clear()
        async with opened(engine) as first, opened(engine, OTHER) as second:
            await until(lambda: engine.status().waiting == 1)
            second.cancel()
            async with asyncio.timeout(PATIENCE):
                said = await read(second)
            assert (said.ids, said.finished.reason) == ([], "cancelled")
            assert (engine.status().waiting, engine.status().running) == (0, 1)
            engine.target.gate.set()
            assert (await read(first)).ids == answer
        assert is_idle(engine)


async def test_cancelled_while_it_prefills(
    tiny_package: Path, answer: list[int], other_answer: list[int]
) -> None:
    """Its chunk is still running when the slot has its next owner."""
    async with running(tiny_package, slots=1) as engine:
        engine.target.gate.clear()
        async with opened(engine) as generation:
            await until(lambda: len(engine.target.runs) == 1)
            generation.cancel()
            async with asyncio.timeout(PATIENCE):
                assert (await read(generation)).finished.reason == "cancelled"
            assert is_idle(engine)
            following = asyncio.create_task(ask(engine, OTHER))
            await until(lambda: engine.status().running == 1)
            engine.target.gate.set()
            assert (await following).ids == other_answer
        assert (await ask(engine, PROMPT)).ids == answer[:24]


async def test_cancelled_while_a_prompt_is_read_that_nothing_is_said_to(
    tiny_package: Path,
) -> None:
    """It would else be taken for one whose prompt was read."""
    async with running(tiny_package, slots=1) as engine:
        engine.target.gate.clear()
        async with opened(engine, most=0) as generation:
            await until(lambda: len(engine.target.runs) == 1)
            generation.cancel()
            async with asyncio.timeout(PATIENCE):
                assert (await read(generation)).finished.reason == "cancelled"
            engine.target.gate.set()
        assert (await ask(engine, PROMPT, max_tokens=0)).finished.reason == "length"


async def test_cancelled_in_the_tick_in_which_it_is_given_a_slot(
    tiny_package: Path, other_answer: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tiny_package, slots=1) as engine:
        engine.target.gate.clear()
        async with opened(engine, most=2) as first, opened(engine) as second:
            await until(lambda: engine.status().waiting == 1)
            third = asyncio.create_task(ask(engine, OTHER))
            await until(lambda: engine.status().waiting == 2)
            handed = cancel_at_release(engine, second, monkeypatch)
            engine.target.gate.set()
            await read(first)
            async with asyncio.timeout(PATIENCE):
                assert (await read(second)).finished.reason == "cancelled"
                assert (await third).ids == other_answer
        assert handed == [1], "cancelled once, when the slot was handed over"
        assert is_idle(engine)


def cancel_at_release(
    engine: TestEngine, generation: Generation, monkeypatch: pytest.MonkeyPatch
) -> list[int]:
    """Cancel `generation` right behind the next release; how many then still waited."""
    waiting: list[int] = []
    release = engine.release

    def release_and_cancel(slot: Slot) -> None:
        release(slot)
        if not waiting:
            waiting.append(engine.status().waiting)
            generation.cancel()

    monkeypatch.setattr(engine, "release", release_and_cancel)
    return waiting


@pytest.mark.parametrize("slots", [2, 3])
async def test_cancelled_while_its_prefix_is_copied(
    tiny_package: Path, package: Package, slots: int
) -> None:
    """The slot counts the copied tokens already: the copy must still happen, and the slot return.

    The next request continues that slot, so what it says tells whether the K/V is really there.
    """
    following = (*PROMPT, 5, 6, 7)
    async with running(tiny_package, slots=slots) as engine:
        async with opened(engine) as busy:
            await anext(busy)  # its prompt is in the slot
            engine.target.gate.clear()
            await asyncio.sleep(0.02)  # the run in progress ends, the next one waits at the gate
            async with opened(engine, (*PROMPT, 9)) as copying:
                await until(lambda: sum(map(holds_prompt, engine.pool_slots)) == 2)
                copying.cancel()
                async with asyncio.timeout(PATIENCE):
                    assert (await read(copying)).finished.reason == "cancelled"
            assert engine.status().running == 1
            engine.target.gate.set()
            said = await ask(engine, following)
            assert said.finished.usage.cached_tokens == len(PROMPT)
            await read(busy)
        assert is_idle(engine)
    assert said.ids == Reference(package).answer(following, 24)


def holds_prompt(slot: Slot) -> bool:
    """The busy request's slot does, and the one leased with a copy of it."""
    return tuple(slot.tokens[: len(PROMPT)].tolist()) == PROMPT


async def test_what_it_waits_for_may_be_cancelled_under_it(
    tiny_package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is left without an end: only closing cancels what answers wait for."""

    async def recall(request: GenerationRequest) -> None:
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        await future

    async with running(tiny_package) as engine:
        monkeypatch.setattr(engine, "recall", recall)
        with pytest.raises(UserError) as error:
            await ask(engine, PROMPT)
        assert error.value.code == "draining"
        assert is_idle(engine)
