"""Every policy through the engine: the same answers, alone and beside others."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.engine.requests import POLICIES, Policy, Speculation
from models.draft import Draft
from models.package import Package
from tests.engine_support import Reference, ScriptedDrafter, ask, make_prompt, running

PROMPTS = [make_prompt(length) for length in (30, 41, 23)]
COUNT = 40
LOSSLESS = [policy for policy in POLICIES if policy not in ("adasd", "off")]


def speculation(policy: Policy) -> Speculation:
    return Speculation(policy=policy, length=6, tpot_ms=0.5 if policy == "slo" else None)


class UnsureDrafter(ScriptedDrafter):
    """Every third token is wrong; it is as sure of each as that makes it."""

    def propose(self, budget: int) -> Draft:
        draft = super().propose(budget)
        return draft._replace(confidence=(0.66,) * len(draft.tokens))


def drafter(package: Package, answer: Sequence[int]) -> UnsureDrafter:
    script = [token if index % 3 else token + 1 for index, token in enumerate(answer)]
    return UnsureDrafter(script, package.manifest.target.vocab_size)


@pytest.fixture(scope="module")
def answers(reference: Reference) -> list[list[int]]:
    return [reference.answer(prompt, COUNT) for prompt in PROMPTS]


@pytest.mark.parametrize("policy", LOSSLESS)
async def test_an_answer_is_the_same_under_every_policy(
    tiny_package: Path, package: Package, answers: list[list[int]], policy: Policy
) -> None:
    async with running(tiny_package) as engine:
        engine.drafter_of = lambda: drafter(package, answers[0])
        said = await ask(engine, PROMPTS[0], max_tokens=COUNT, speculation=speculation(policy))
    assert said.ids == answers[0]
    timings = said.finished.timings
    assert (timings.policy, timings.lossless) == (policy, True)
    assert timings.draft_n > 0


@pytest.mark.parametrize("policy", [*LOSSLESS, None], ids=str)
async def test_streams_that_share_a_run_answer_as_alone(
    tiny_package: Path, package: Package, answers: list[list[int]], policy: Policy | None
) -> None:
    """None: every stream has another policy."""
    policies = [policy] * 3 if policy is not None else ["slo", "fixed", "confidence"]
    async with running(tiny_package) as engine:
        scripts = iter([*answers, *answers])
        engine.drafter_of = lambda: drafter(package, next(scripts))
        said = await asyncio.gather(
            *(
                ask(engine, prompt, max_tokens=COUNT, speculation=speculation(each))
                for prompt, each in zip(PROMPTS, policies, strict=True)
            )
        )
    assert [each.ids for each in said] == answers


async def test_adasd_says_that_it_is_lossy(
    tiny_package: Path, package: Package, answers: list[list[int]]
) -> None:
    async with running(tiny_package) as engine:
        engine.drafter_of = lambda: drafter(package, answers[0])
        lossy = replace(speculation("adasd"), rule="adasd")
        said = await ask(engine, PROMPTS[0], max_tokens=COUNT, speculation=lossy)
    timings = said.finished.timings
    assert (timings.policy, timings.rule, timings.lossless) == ("adasd", "adasd", False)
    assert timings.draft_n > 0


async def test_a_stream_whose_drafts_fail_takes_no_width_from_one_whose_do_not(
    tiny_package: Path, package: Package, answers: list[list[int]]
) -> None:
    """Costs are flat but for what outcomes say: the wrong one is soon left out."""
    wrong = [token + 1 for token in answers[1]]
    async with running(tiny_package) as engine:
        scripts = iter([answers[0], wrong])
        engine.drafter_of = lambda: UnsureDrafter(next(scripts), package.manifest.target.vocab_size)
        first, second = await asyncio.gather(
            *(
                ask(engine, prompt, max_tokens=COUNT, speculation=speculation("cost"))
                for prompt in PROMPTS[:2]
            )
        )
    assert first.ids == answers[0]
    assert second.ids == answers[1]
    assert first.finished.timings.alpha == 1.0
    assert second.finished.timings.draft_n_accepted == 0
