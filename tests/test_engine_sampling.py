"""A seeded answer is a function of prompt, parameters and seed, whatever is drafted, and whatever
runs beside it.

vllm#6038, TRT-LLM#17599: seeds count. vllm#42744, TRT-LLM#17701, sglang#33643: so do penalties,
bias and min_p, at every row of a draft. vllm#33251: each token once.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pytest

from gateway.engine.requests import GenerationRequest, Speculation
from models.draft import Draft
from models.package import Package
from models.sampling.parameters import Sampling
from tests.engine_support import (
    MOST,
    OFF,
    OnePathDrafter,
    Reference,
    ScriptedDrafter,
    ask,
    ask_at_once,
    is_idle,
    label,
    make_prompt,
    read,
    running,
)

PROMPTS = tuple(make_prompt(length, seed=length) for length in (34, 12, 71, 3))
LONG = make_prompt(163, seed=163)
FIXED = tuple(Speculation(policy="fixed", length=length) for length in range(1, 9))
AUTO = Speculation()
PLAIN = Sampling(temperature=0.8, seed=7)
SAMPLINGS = {
    "plain": PLAIN,
    "nucleus": dataclasses.replace(PLAIN, top_p=0.9, min_p=0.02),
    "top-k": dataclasses.replace(PLAIN, temperature=1.5, top_k=20),
    "penalised": dataclasses.replace(
        PLAIN, repetition_penalty=1.3, presence_penalty=0.5, frequency_penalty=0.7, top_p=0.95
    ),
    "biased": dataclasses.replace(PLAIN, logit_bias=((17, 3.5), (40, -100.0), (99, 2.0))),
    "greedy and penalised": Sampling(repetition_penalty=1.5, frequency_penalty=1.0),
    "least": dataclasses.replace(PLAIN, min_tokens=9),
}
Expected = dict[tuple[str, tuple[int, ...]], list[int]]


@pytest.fixture(scope="module")
def expected(package: Package) -> Expected:
    reference = Reference(package)
    return {
        (name, prompt): reference.answer(prompt, MOST, sampling)
        for name, sampling in SAMPLINGS.items()
        for prompt in PROMPTS
    }


@pytest.mark.parametrize("name", SAMPLINGS)
async def test_identical_with_any_draft_length(
    tiny_package: Path, package: Package, expected: Expected, name: str
) -> None:
    """Drafts that are right, wrong at every third token, and found by n-grams."""
    answer, size = expected[name, PROMPTS[0]], package.manifest.target.vocab_size
    partly = [token if index % 3 else token ^ 1 for index, token in enumerate(answer)]
    scripts = [lambda: ScriptedDrafter(answer, size), lambda: ScriptedDrafter(partly, size), None]
    async with running(tiny_package, slots=1) as engine:
        for speculation in (OFF, *FIXED, AUTO):
            accepted = 0
            for engine.drafter_of in scripts:
                said = await ask(
                    engine,
                    PROMPTS[0],
                    max_tokens=MOST,
                    sampling=SAMPLINGS[name],
                    speculation=speculation,
                )
                assert said.ids == answer, label(speculation)
                accepted += said.finished.timings.draft_n_accepted
            assert (accepted > 20) == (speculation.policy != "off"), "drafts were accepted"


@pytest.mark.parametrize("name", SAMPLINGS)
async def test_identical_with_trees_of_one_path(
    tiny_package: Path, package: Package, expected: Expected, name: str
) -> None:
    answer, size = expected[name, PROMPTS[0]], package.manifest.target.vocab_size
    async with running(tiny_package) as engine:
        engine.drafter_of = lambda: OnePathDrafter(answer, size)
        said = await ask(
            engine,
            PROMPTS[0],
            max_tokens=MOST,
            sampling=SAMPLINGS[name],
            speculation=FIXED[5],
        )
    assert said.ids == answer
    assert said.finished.timings.draft_n_accepted > 20
    assert said.finished.timings.exact is True, "no graph for trees was needed"


@pytest.mark.parametrize("speculation", [OFF, FIXED[2], AUTO], ids=label)
async def test_requests_at_once_do_not_influence_one_another(
    tiny_package: Path, expected: Expected, speculation: Speculation
) -> None:
    """Every prompt with every kind of sampling, four in a run and the rest waiting."""
    async with running(tiny_package) as engine:
        keys = list(expected)
        calls = [
            ask(
                engine,
                prompt,
                max_tokens=MOST,
                sampling=SAMPLINGS[name],
                speculation=speculation,
            )
            for name, prompt in keys
        ]
        answers = await asyncio.gather(*calls)
        assert is_idle(engine)
        assert max(len(run) for run in engine.target.runs) == 4
    assert [said.ids for said in answers] == [expected[key] for key in keys]


@pytest.mark.parametrize("chunk", [1, 3, 7, 64])
async def test_identical_with_any_prefill_chunk(
    tiny_package: Path, package: Package, chunk: int
) -> None:
    sampling = SAMPLINGS["penalised"]
    answer = Reference(package).answer(LONG, MOST, sampling)
    async with running(tiny_package) as engine:
        said = await ask(
            engine,
            LONG,
            max_tokens=MOST,
            sampling=sampling,
            prefill_chunk=chunk,
            reuse_prefix=False,
        )
    assert said.ids == answer


async def test_identical_with_a_cold_or_warm_prefix(tiny_package: Path, package: Package) -> None:
    reference, prompt = Reference(package), PROMPTS[0]
    async with running(tiny_package, slots=2) as engine:
        cold = await ask(engine, prompt, max_tokens=MOST, sampling=PLAIN)
        warm = await ask(engine, prompt, max_tokens=MOST, sampling=PLAIN)
        further = (*prompt, *cold.ids, 7, 8, 9)
        continued = await ask(engine, further, max_tokens=MOST, sampling=PLAIN)
    assert cold.ids == warm.ids
    assert continued.ids == reference.answer(further, MOST, PLAIN)
    assert warm.finished.usage.cached_tokens == len(prompt) - 1
    assert continued.finished.usage.cached_tokens >= len(prompt)


class TestSeeds:
    """vllm#6038, TRT-LLM#17599: the seed was ignored."""

    async def test_the_same_seed_says_the_same_and_another_something_else(
        self, tiny_package: Path
    ) -> None:
        async with running(tiny_package) as engine:
            seeds = [3, 3, 4, 5, -1, 2**63 - 1, -(2**63)]
            answers = [
                await ask(engine, PROMPTS[0], sampling=Sampling(temperature=1.0, seed=seed))
                for seed in seeds
            ]
        said = [tuple(answer.ids) for answer in answers]
        assert said[0] == said[1]
        assert len(set(said)) == len(seeds) - 1

    async def test_an_unseeded_request_gets_a_fresh_seed_that_replays_it(
        self, tiny_package: Path
    ) -> None:
        async with running(tiny_package) as engine:
            request = GenerationRequest(
                PROMPTS[0], 24, ignore_eos=True, sampling=Sampling(temperature=1.0)
            )
            seeds, answers = set(), set()
            for _ in range(4):
                async with engine.open(request) as generation:
                    seed = generation.request.sampling.seed
                    assert seed is not None, "known at once"
                    said = await read(generation)
                seeds.add(seed)
                answers.add(tuple(said.ids))
                again = await ask(engine, PROMPTS[0], sampling=Sampling(temperature=1.0, seed=seed))
                assert again.ids == said.ids
        assert len(seeds) == len(answers) == 4

    async def test_seeds_at_once_do_not_influence_one_another(self, tiny_package: Path) -> None:
        """Four streams on one prompt, two of a seed; alone each says the same."""
        samplings = [Sampling(temperature=1.0, seed=seed) for seed in (1, 2, 1, 9)]
        async with running(tiny_package) as engine:
            together = await asyncio.gather(
                *(ask(engine, PROMPTS[0], sampling=sampling) for sampling in samplings)
            )
            alone = [
                await ask(engine, PROMPTS[0], sampling=sampling, speculation=OFF)
                for sampling in samplings
            ]
        assert [said.ids for said in together] == [said.ids for said in alone]
        assert together[0].ids == together[2].ids
        assert together[0].ids != together[1].ids

    async def test_what_was_rejected_shifts_nothing(
        self, tiny_package: Path, package: Package, expected: Expected
    ) -> None:
        """Any number of draft tokens verified and thrown away."""
        answer, size = expected["plain", PROMPTS[1]], package.manifest.target.vocab_size
        async with running(tiny_package) as engine:
            engine.drafter_of = lambda: ScriptedDrafter(answer, size, wrong=1)
            said = await ask_at_once(engine, PROMPTS[1:2] * 2, sampling=PLAIN, speculation=FIXED[7])
        assert [answered.ids for answered in said] == [answer, answer]
        assert said[0].finished.timings.draft_n_accepted == 0
        assert said[0].finished.timings.draft_n > 100


class TestMinimum:
    async def test_no_end_before_the_least_tokens(self, tiny_package: Path) -> None:
        """Ids that end the answer are not even drawn before: they are masked in every row."""
        common = tuple(range(3, 250))
        async with running(tiny_package) as engine:
            engine.eos_ids = frozenset(common[:100])
            for speculation in (OFF, FIXED[3], AUTO):
                said = await ask(
                    engine,
                    PROMPTS[0],
                    ignore_eos=False,
                    stop_ids=common[100:],
                    sampling=Sampling(temperature=1.0, seed=5, min_tokens=12),
                    speculation=speculation,
                )
                assert said.finished.reason == "stop"
                assert len(said.ids) >= 12
                assert not set(said.ids) & set(common)

    async def test_the_end_of_sequence_is_not_masked_where_it_is_ignored(
        self, tiny_package: Path, package: Package
    ) -> None:
        sampling = Sampling(temperature=1.0, seed=5, min_tokens=20)
        answer = Reference(package).answer(PROMPTS[0], MOST, dataclasses.replace(PLAIN, seed=5))
        async with running(tiny_package) as engine:
            engine.eos_ids = frozenset(range(300))
            said = await ask(
                engine,
                PROMPTS[0],
                max_tokens=MOST,
                sampling=dataclasses.replace(sampling, temperature=0.8),
            )
        assert said.ids == answer


class Blind(ScriptedDrafter):
    """Proposes the same tokens whatever was said."""

    def propose(self, budget: int) -> Draft:
        return Draft(tokens=tuple(self._script[:budget]), source=self.name)


@pytest.mark.parametrize("rule", ["classic", "typical", "adasd", "synthetic"])
async def test_every_rule_replays_by_its_seed_and_says_what_it_is(
    tiny_package: Path, package: Package, expected: Expected, rule: str
) -> None:
    answer, size = expected["plain", PROMPTS[0]], package.manifest.target.vocab_size
    speculation = Speculation(policy="fixed", length=4, rule=rule)  # type: ignore[arg-type]
    async with running(tiny_package) as engine:
        engine.drafter_of = lambda: Blind(answer, size)
        first, again = [
            await ask(engine, PROMPTS[0], sampling=PLAIN, speculation=speculation) for _ in range(2)
        ]
    assert first.ids == again.ids
    assert len(first.ids) == 24
    timings = first.finished.timings
    assert (timings.rule, timings.lossless) == (rule, rule == "classic")
    assert timings.accept_ms > 0


@pytest.mark.parametrize(("acceptance", "accepted"), [(0.0, 0), (1.0, 18)])
async def test_rule_synthetic_accepts_as_it_is_told(
    tiny_package: Path, package: Package, acceptance: float, accepted: int
) -> None:
    """Even nonsense: 23 tokens behind the first are 4 rounds of 5 tokens and one of 3."""
    nonsense: Sequence[int] = [33, 34, 35, 36] * 8
    speculation = Speculation(policy="fixed", length=4, rule="synthetic", acceptance=acceptance)
    async with running(tiny_package) as engine:
        engine.drafter_of = lambda: Blind(nonsense, package.manifest.target.vocab_size)
        said = await ask(engine, PROMPTS[0], sampling=PLAIN, speculation=speculation)
    assert said.finished.timings.draft_n_accepted == accepted
    assert len(said.ids) == 24
