"""Reported elsewhere: what a rejected, shared, cancelled or finished draft left behind.

Greedy output that diverges (llama.cpp#25618, mlx-lm#1470), garbage K/V in a batch (mlx-vlm#1155)
and ignored seeds (vllm#6038, TRT-LLM#17599) are in `test_engine_lossless` and
`test_engine_sampling`.
"""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.engine.generation import Generation
from gateway.engine.requests import Delta, GenerationRequest, Speculation
from models.draft import Draft
from models.sampling.parameters import Sampling
from tests.engine_support import (
    OFF,
    Reference,
    ScriptedDrafter,
    TestEngine,
    ask,
    is_idle,
    kv_bytes,
    make_prompt,
    read,
    running,
    until,
)
from tests.http_serving import serving, socket_to
from tests.http_serving import until as until_served
from tests.patience import PATIENCE
from tests.pitfalls_support import Stubborn

PROMPT = make_prompt(30)
OTHER = make_prompt(25, seed=7)
EIGHT = Speculation(policy="fixed", length=8)
TREE = Speculation(policy="fixed", length=12, branches=4)
HOT = Sampling(temperature=1.5, seed=11, frequency_penalty=0.3)


@pytest.fixture(scope="module")
def answer(reference: Reference) -> list[int]:
    return reference.answer(PROMPT, 100)


class WrongAt(ScriptedDrafter):
    """Right up to place `wrong` of every draft, right again behind it."""

    place = 0

    def propose(self, budget: int) -> Draft:
        tokens = list(super().propose(budget).tokens)
        if self.place < len(tokens):
            tokens[self.place] ^= 1
        return Draft(tuple(tokens), source=self.name)


@pytest.mark.parametrize("place", range(8))
async def test_rollback_is_wrong_while_acceptance_looks_healthy(
    tiny_package: Path, answer: list[int], reference: Reference, place: int
) -> None:
    """vllm#39273: the output and every byte of the K/V behind it, not the acceptance.

    The next turn, plainly decoded, continues on that K/V.
    """
    drafter = WrongAt(answer, 300)
    drafter.place = place
    async with running(tiny_package, slots=1) as engine:
        engine.drafter_of = lambda: drafter
        said = await ask(engine, PROMPT, max_tokens=40, speculation=EIGHT)
        (slot,) = engine.pool_slots
        held = slot.tokens.tolist()
        assert held == [*PROMPT, *answer][: len(held)]
        assert kv_bytes(slot, len(held)) == reference.kv(held)
        further = (*PROMPT, *said.ids, 7, 8)
        next_turn = await ask(engine, further, max_tokens=20, speculation=OFF)
    timings = said.finished.timings
    assert said.ids == answer[:40]
    assert timings.draft_n_accepted >= place * (timings.rounds - 2)
    assert next_turn.finished.usage.cached_tokens >= len(held)
    assert next_turn.ids == reference.answer(further, 20)


class Cancels(Stubborn):
    """Has its request cancelled in the middle of its third draft."""

    def __init__(self, leave: Callable[[], object]) -> None:
        super().__init__([9] * 40, 300)
        self._leave = leave

    def propose(self, budget: int) -> Draft:
        draft = super().propose(budget)
        if len(self.budgets) == 3:
            self._leave()
        return draft


@pytest.mark.parametrize("way", ["cancel", "leave"])
@pytest.mark.parametrize("speculation", [EIGHT, Speculation()], ids=["fixed", "auto"])
async def test_cancel_is_not_honoured_during_drafting(
    tiny_package: Path, reference: Reference, way: str, speculation: Speculation
) -> None:
    """llama.cpp fork #20: it stops within the round and frees its slot, of which there is one."""
    loop = asyncio.get_running_loop()
    async with running(tiny_package, slots=1) as engine:
        engine.target.seconds = 0.01  # in less than that nobody could say so
        request = GenerationRequest(PROMPT, 100, ignore_eos=True, speculation=speculation)
        left = asyncio.Event()
        async with engine.open(request) as generation:
            drafter = Cancels(lambda: loop.call_soon_threadsafe(end, generation, left, way))
            engine.drafter_of = lambda: drafter
            async with asyncio.timeout(PATIENCE):
                await left.wait()
                if way == "cancel":
                    rest = await read(generation)
                    assert rest.finished.reason == "cancelled"
                    assert is_idle(engine)
        assert is_idle(engine)
        assert len(drafter.budgets) == 3, "nothing was drafted after that"
        # One prefill and two rounds; the third may have been on its way.
        assert len(engine.target.runs) <= 4
        assert (await ask(engine, OTHER, speculation=OFF)).ids == reference.answer(OTHER, 24)
        assert sum(row.tokens == OTHER for run in engine.target.runs for row in run) == 1


def end(generation: Generation, left: asyncio.Event, way: str) -> None:
    if way == "cancel":
        generation.cancel()
    left.set()


async def test_cancel_is_not_honoured_during_drafting_over_the_wire(
    tiny_package: Path, reference: Reference
) -> None:
    """llama.cpp fork #20: the client cancels while every round drafts and rejects eight tokens."""
    async with (
        running(tiny_package, slots=1) as engine,
        serving(engine) as served,
        socket_to(served) as socket,
    ):
        drafter = Stubborn([9] * 40, 300)
        engine.drafter_of = lambda: drafter
        asked: dict[str, Any] = {"type": "response.create", "input": "the", "ignore_eos": True}
        await socket.send_json({**asked, "speculation": {"policy": "fixed", "length": 8}})
        created = await socket.receive_json(timeout=PATIENCE)
        await until_served(lambda: len(drafter.budgets) > 2)
        engine.target.gate.clear()
        await asyncio.sleep(0.02)
        drafted = len(drafter.budgets)
        cancel = {"type": "response.cancel", "response_id": created["response"]["id"]}
        await socket.send_json(cancel)
        # The run in progress is held: its slot is free without it.
        await until_served(lambda: is_idle(engine))
        engine.target.gate.set()
        event = created
        while event["type"] not in ("response.incomplete", "response.completed"):
            event = await socket.receive_json(timeout=PATIENCE)
        assert event["response"]["status"] == "cancelled"
        assert len(drafter.budgets) == drafted
        assert (await ask(engine, OTHER, speculation=OFF)).ids == reference.answer(OTHER, 24)


MODES: dict[str, dict[str, Any]] = {
    "off": {"speculation": OFF},
    "fixed": {"speculation": EIGHT},
    "auto": {"speculation": Speculation()},
    "tree": {"speculation": TREE},
    "sampled": {"speculation": EIGHT, "sampling": HOT},
    "sampled, off": {"speculation": OFF, "sampling": HOT},
    "scored": {"speculation": EIGHT, "sampling": HOT, "top_logprobs": 5, "prompt_logprobs": True},
}
SERVED = 4
LEAST_LEAK = 200
"""Bytes per token: a kept row of what the target gave is more."""


@pytest.mark.parametrize("mode", MODES)
async def test_memory_leaks_when_speculation_is_off(tiny_package: Path, mode: str) -> None:
    """vllm#15506: what Python and numpy hold is the same after further requests, in every mode."""
    async with running(tiny_package, slots=2) as engine:
        await serve_some(engine, MODES[mode])
        tracemalloc.start(1)
        try:
            await serve_some(engine, MODES[mode])
            before = held_bytes(engine)
            # Some, since what is said together, and is held for the next one, differs each time.
            tokens = sum([await serve_some(engine, MODES[mode]) for _ in range(SERVED)])
            grown = held_bytes(engine) - before
        finally:
            tracemalloc.stop()
        assert is_idle(engine)
    assert tokens == SERVED * 5 * 24
    assert grown < LEAST_LEAK * tokens


async def serve_some(engine: TestEngine, fields: dict[str, Any]) -> int:
    """One after another, and the same each time: runs of the same shapes in the same slots."""
    prompts = [make_prompt(20 + index, seed=index) for index in range(5)]
    return sum([len((await ask(engine, prompt, **fields)).ids) for prompt in prompts])


def held_bytes(engine: TestEngine) -> int:
    engine.target.runs.clear()
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


async def test_an_abandoned_draft_leaks_its_slot(tiny_package: Path, answer: list[int]) -> None:
    """llama.cpp fork #20, vllm#15506: fifty clients leave in mid-round, one after another."""
    async with running(tiny_package, slots=1) as engine:
        engine.drafter_of = lambda: ScriptedDrafter(answer, 300)
        for _ in range(50):
            request = GenerationRequest(PROMPT, 100, ignore_eos=True, speculation=EIGHT)
            async with engine.open(request) as generation:
                assert isinstance(await anext(generation), Delta)
            await until(lambda: is_idle(engine))
        said = await ask(engine, PROMPT, max_tokens=100, speculation=EIGHT)
    assert said.ids == answer
