"""Reported elsewhere: sampling that speculation changed.

Answers are compared with ones whose processing is written out naively, token by token.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gateway.engine.answer
from bench.goodness import p_value
from gateway.engine.requests import Rule, Speculation
from models.draft import Draft, Drafter
from models.package import load_package
from models.sampling.noise import Purpose, exponentials
from models.sampling.parameters import Sampling
from models.verification import Outcome
from tests.engine_support import ScriptedDrafter, ask, make_prompt, running
from tests.pitfalls_support import PlainRows, SamplingDrafter, Stubborn

PROMPT = make_prompt(30)
SHORT = make_prompt(6, seed=2)
COUNT = 40
SAMPLES = 800
LEAST_P = 1e-4


@pytest.fixture(scope="module")
def rows(tiny_package: Path) -> PlainRows:
    return PlainRows(load_package(tiny_package))


@pytest.mark.parametrize("rule", ["coupled", "classic"])
@pytest.mark.parametrize("length", [1, 4, 8])
async def test_min_p_and_logit_bias_reach_only_the_bonus_token(
    tiny_package: Path, rows: PlainRows, rule: Rule, length: int
) -> None:
    """vllm#42744: at min_p 1 only the most probable token is left of every row, after the bias.

    The drafter proposes what is said without the bias, at every place.
    """
    plain = rows.likeliest(PROMPT, COUNT, Sampling())
    banned = tuple(dict.fromkeys(plain[1::2]))
    sampling = Sampling(
        temperature=2.0, min_p=1.0, seed=3, logit_bias=tuple((token, -100.0) for token in banned)
    )
    answer = rows.likeliest(PROMPT, COUNT, sampling)
    speculation = Speculation(policy="fixed", length=length, rule=rule)
    async with running(tiny_package) as engine:
        for drafter in (ScriptedDrafter(plain, 300), ScriptedDrafter(answer, 300)):
            engine.drafter_of = lambda drafter=drafter: drafter
            said = await ask(
                engine, PROMPT, max_tokens=COUNT, sampling=sampling, speculation=speculation
            )
            assert said.ids == answer
            assert not set(said.ids) & set(banned)
    assert said.finished.timings.draft_n_accepted > COUNT / 3


async def draw_answers(
    path: Path, rows: PlainRows, sampling: Sampling, drafter_of: Callable[[Sampling], Drafter]
) -> tuple[np.ndarray, list[int]]:
    """How often each pair of first tokens came, by their place among the `top_k` most probable
    [top_k, top_k], with rule classic and one draft token; and the accepted drafts of each."""
    most = sampling.top_k
    counts, accepted = np.zeros((most, most), np.int64), []
    speculation = Speculation(policy="fixed", length=1, rule="classic")
    async with running(path, slots=1) as engine:
        for seed in range(SAMPLES):
            own = dataclasses.replace(sampling, seed=seed)
            engine.drafter_of = lambda own=own: drafter_of(own)
            # The third token is only there so that the second is drafted.
            said = await ask(engine, SHORT, max_tokens=3, sampling=own, speculation=speculation)
            first = places(rows, (), most).index(said.ids[0])
            second = places(rows, said.ids[:1], most).index(said.ids[1])
            counts[first, second] += 1
            accepted.append(said.finished.timings.draft_n_accepted)
    return counts, accepted


def places(rows: PlainRows, answer: list[int] | tuple[int, ...], most: int) -> list[int]:
    return np.argsort(-rows.behind((*SHORT, *answer)), kind="stable")[:most].tolist()


def pairs(rows: PlainRows, sampling: Sampling) -> np.ndarray:
    """The probability of each pair of first tokens, laid out like the counts."""
    most = sampling.top_k
    firsts = places(rows, (), most)
    first = rows.probabilities(SHORT, (), sampling)[firsts]
    second = [
        rows.probabilities(SHORT, (token,), sampling)[places(rows, [token], most)]
        for token in firsts
    ]
    return first[:, None] * np.array(second)


@pytest.mark.parametrize("temperature", [0.5, 1.5])
async def test_the_q_handed_to_acceptance_is_not_the_q_that_was_sampled(
    tiny_package: Path, rows: PlainRows, temperature: float
) -> None:
    """transformers#47932: with any other q the answers would have another distribution."""
    sampling = Sampling(temperature=temperature, top_k=4)
    counts, accepted = await draw_answers(
        tiny_package, rows, sampling, lambda own: SamplingDrafter(rows, own)
    )
    assert p_value(counts, pairs(rows, sampling)) > LEAST_P
    assert 0.2 < np.mean(accepted) < 0.8, "both outcomes were tried"


async def test_a_deterministic_draft_is_treated_as_a_sample(
    tiny_package: Path, rows: PlainRows
) -> None:
    """ml-recurrent-drafter#6, jaymody/speculative-sampling#3: it is accepted with probability p(x),
    and what is said is distributed as without it."""
    sampling = Sampling(temperature=1.5, top_k=4)
    firsts = places(rows, (), 4)
    always = places(rows, firsts[:1], 4)[1]
    counts, accepted = await draw_answers(
        tiny_package, rows, sampling, lambda own: Stubborn([always], 300)
    )
    p = sum(
        rows.probabilities(SHORT, (), sampling)[first]
        * rows.probabilities(SHORT, (first,), sampling)[always]
        for first in firsts
    )
    assert p_value(counts, pairs(rows, sampling)) > LEAST_P
    assert p_value(np.bincount(accepted, minlength=2), np.array([1 - p, p])) > LEAST_P


@pytest.mark.parametrize("rule", ["classic", "adasd"])
@pytest.mark.parametrize("policy", ["fixed", "auto"])
async def test_a_draft_is_sampled_in_bf16_and_accepted_in_fp32(
    tiny_package: Path,
    rows: PlainRows,
    rule: Rule,
    policy: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """DeepSpec#31: there is one q. From the q that acceptance is given the same draft is drawn.

    The drafter is coarse: rounded to steps of 2, as a low precision would, it draws other tokens.
    """
    given = record_drafts(monkeypatch)
    sampling = Sampling(temperature=0.9, top_p=0.98, repetition_penalty=1.2, seed=5)
    drafter = CoarseDrafter(rows, sampling)
    async with running(tiny_package) as engine:
        engine.drafter_of = lambda: drafter
        speculation = Speculation(policy=policy, length=4, rule=rule)
        said = await ask(engine, SHORT, max_tokens=80, sampling=sampling, speculation=speculation)
    verified = [(start, draft) for start, draft in given if draft.tokens]
    assert len(verified) > 10
    for start, draft in verified:
        assert draft.proposals is not None
        assert len(draft.proposals) == len(draft.tokens)
        for place, (token, q) in enumerate(zip(draft.tokens, draft.proposals, strict=True)):
            assert q.probabilities.dtype == np.float64
            assert q.probabilities.sum() == pytest.approx(1, abs=1e-12)
            position = start + place
            times = exponentials(5, position, Purpose.DRAFT, q.ids) / q.probabilities
            assert q.ids[times.argmin()] == token
    # What the drafter made is what was verified, as far as it was.
    made = {id(q) for draft in drafter.drafts for q in draft.proposals or ()}
    assert {id(q) for _, draft in verified for q in draft.proposals or ()} <= made
    assert 0 < said.finished.timings.draft_n_accepted < said.finished.timings.draft_n


class CoarseDrafter(SamplingDrafter):
    def logits_behind(self, tokens: tuple[int, ...]) -> np.ndarray:
        return (np.round(self._rows.behind(tokens) / 2) * 2).astype(np.float32)


def record_drafts(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, Draft]]:
    """Every draft that is verified from now on, with the position of its first token."""
    given: list[tuple[int, Draft]] = []
    accept = gateway.engine.answer.accept

    def recording(draft: Draft, rows: Any, sampler: Any, rule: Any) -> Outcome:
        given.append((sampler.position, draft))
        return accept(draft, rows, sampler, rule)

    monkeypatch.setattr(gateway.engine.answer, "accept", recording)
    return given


@pytest.mark.parametrize("rule", ["coupled", "classic"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("length", [1, 2, 5, 8])
async def test_rejection_of_the_last_candidate_drops_a_word(
    tiny_package: Path, rows: PlainRows, length: int, temperature: float, rule: Rule
) -> None:
    """openvino.genai#4190: every draft is right but for its last token, which is resampled from
    the row that rejected it. At min_p 1 one token is right at any temperature."""
    sampling = Sampling(temperature=temperature, min_p=1.0, seed=1)
    answer = rows.likeliest(PROMPT, COUNT, Sampling())
    drafter = LastIsWrong(answer, 300)
    async with running(tiny_package) as engine:
        engine.drafter_of = lambda: drafter
        said = await ask(
            engine,
            PROMPT,
            max_tokens=COUNT,
            sampling=sampling,
            speculation=Speculation(policy="fixed", length=length, rule=rule),
        )
    timings = said.finished.timings
    assert said.ids == answer
    assert timings.draft_n - timings.draft_n_accepted == len(drafter.budgets) > 3


class LastIsWrong(ScriptedDrafter):
    def propose(self, budget: int) -> Draft:
        tokens = super().propose(budget).tokens
        return Draft((*tokens[:-1], tokens[-1] ^ 1), source=self.name)
