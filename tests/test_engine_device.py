"""An engine on a device, played by the processor: the same answers, replays in every round."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from gateway.engine.engine import Engine
from gateway.engine.options import EngineOptions
from gateway.engine.requests import Speculation
from models.capture import GraphStatus
from models.errors import UserError
from models.package import Package
from models.providers import DeviceOptions
from models.sampling.parameters import Sampling
from tests.device_support import for_device, played
from tests.engine_support import OFF, Reference, ask, ask_at_once, make_prompt

CONTEXT = 200
KINDS = ("ngram", "draft-model", "eagle3", "mtp", "self-speculative", "medusa")


@pytest.fixture(scope="module")
def device_package(drafting: Package, tmp_path_factory: pytest.TempPathFactory) -> Package:
    return for_device(drafting, tmp_path_factory.mktemp("device") / "package")


@asynccontextmanager
async def running(package: Package, **options: object) -> AsyncIterator[Engine]:
    """An engine as it starts, with only the device's name replaced."""
    chosen = EngineOptions(**{"context": CONTEXT, "slots": 2, "drafter": "off", **options})  # type: ignore[arg-type]
    engine = await Engine.start(package, chosen, provider=played(chosen.device_use))
    try:
        yield engine
    finally:
        await engine.close()


def graphs(engine: Engine) -> GraphStatus:
    status = engine.status().graphs
    assert status is not None
    return status


async def test_every_drafter_gives_the_answers_of_the_host(
    device_package: Package, drafting: Package
) -> None:
    reference = Reference(drafting)
    prompt = make_prompt(40)
    async with running(device_package) as engine:
        assert engine.device == "cuda"
        for sampling in (Sampling(), Sampling(temperature=0.8, seed=5)):
            expected = reference.answer(prompt, 24, sampling)
            for kind in KINDS:
                speculation = Speculation(drafter=kind, policy="fixed", length=4)
                found = await ask(engine, prompt, sampling=sampling, speculation=speculation)
                assert found.ids == expected, (kind, sampling)
        drafted = {each.name: each.draft_n for each in engine.status().drafters}
        assert all(drafted[kind] > 0 for kind in KINDS)
        assert all(each.problem is None for each in engine.status().drafters)


async def test_a_round_is_a_replay_once_all_shapes_are_known(device_package: Package) -> None:
    prompts = [make_prompt(40), make_prompt(36, 3)]
    speculation = Speculation(drafter="eagle3", policy="fixed", length=4)
    async with running(device_package) as engine:
        first = await ask_at_once(engine, prompts, speculation=speculation)
        before = graphs(engine)
        again = await ask_at_once(engine, prompts, speculation=speculation)
        after = graphs(engine)
    assert [each.ids for each in again] == [each.ids for each in first]
    eager = {key: after.eager[key] - before.eager.get(key, 0) for key in after.eager}
    replayed = after.replayed - before.replayed
    assert replayed > 20
    # The last token of each prompt is run anew in a slot that still holds the prompt.
    assert sum(eager.values()) <= 2 * len(prompts), eager
    assert after.captured - before.captured < 4, "other widths of rows that meet"


async def test_starting_captures_what_requests_need(device_package: Package) -> None:
    async with running(device_package) as engine:
        before = graphs(engine)
        await ask(engine, make_prompt(30), speculation=OFF)
        after = graphs(engine)
    assert before.captured > 10
    assert after.captured == before.captured
    assert after.refused == ()


async def test_strict_mode_is_exact_and_never_wider(
    device_package: Package, drafting: Package
) -> None:
    prompt = make_prompt(40)
    speculation = Speculation(drafter="ngram", policy="fixed", length=16)
    async with running(device_package, gpu_strict_width=4) as engine:
        assert engine.exact
        assert engine.costs.limits.draft(1) == 3
        plain = await ask(engine, prompt, speculation=OFF)
        found = await ask(engine, prompt, speculation=speculation)
        assert found.ids == plain.ids == Reference(drafting).answer(prompt, 24)
        assert found.finished.timings.draft_n > 0
        assert engine.prefill_chunk() == engine.options.prefill_chunk


async def test_chunks_of_prompts_do_not_take_streams_out_of_their_graphs(
    device_package: Package,
) -> None:
    """A long prompt comes while an answer streams: its chunks run apart."""
    async with running(device_package, prefill_chunk=20, busy_chunk=20) as engine:
        before = graphs(engine)
        calls = [
            ask(engine, make_prompt(20), speculation=OFF, max_tokens=60),
            ask(engine, make_prompt(150, 4), speculation=OFF, max_tokens=4),
        ]
        await asyncio.gather(*calls)
        after = graphs(engine)
    chunks = 1 + 8
    assert after.eager["wide"] - before.eager["wide"] <= chunks
    assert after.replayed - before.replayed >= 60


async def test_trees_run_beside_captured_chains(device_package: Package, drafting: Package) -> None:
    prompt = make_prompt(40)
    speculation = Speculation(drafter="ngram", policy="fixed", length=6, branches=3)
    async with running(device_package) as engine:
        found = await ask(engine, prompt, speculation=speculation)
        assert found.ids == Reference(drafting).answer(prompt, 24)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"gpu_strict_width": 1}, "gpu_strict_width must be at least 2"),
        ({"gpu_memory_mib": 8}, "gpu_memory_mib must be at least 64"),
        ({"gpu_strict_width": 8, "gpu_graphs": False}, "needs gpu_graphs"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, int], problem: str) -> None:
    with pytest.raises(UserError, match=problem):
        EngineOptions(**options)  # type: ignore[arg-type]


def test_options_reach_the_provider() -> None:
    use = EngineOptions(gpu_memory_mib=512, gpu_gemm="fpa-intb", gpu_strict_width=8).device_use
    assert use == DeviceOptions(memory_mib=512, gemm="fpa-intb", strict_width=8)
    assert dataclasses.asdict(EngineOptions().device_use) == dataclasses.asdict(DeviceOptions())
