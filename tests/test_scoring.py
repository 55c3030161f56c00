"""Log-probabilities: the target's own, of every token, of the answer and of the prompt.

llama.cpp#27972, sglang#10660, vllm#17876: none is missing, none is 0 for a drafted token.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from gateway.engine.requests import Speculation, TokenLogprob
from gateway.engine.scoring import PromptScores, RowsFrom
from models.package import Package
from models.sampling.parameters import Sampling
from tests.engine_support import (
    OFF,
    Answered,
    DenseRow,
    DenseRows,
    Reference,
    ScriptedDrafter,
    ask,
    make_prompt,
    running,
)

PROMPT = make_prompt(30)
LONG = make_prompt(150, seed=3)
EIGHT = Speculation(policy="fixed", length=8)
HOT = Sampling(temperature=1.5, seed=11, presence_penalty=1.0, logit_bias=((5, 4.0),))
"""Nothing of this shows in log-probabilities."""


def check(
    entries: Sequence[TokenLogprob], ids: Sequence[int], rows: NDArray[np.float64], top: int
) -> None:
    """`entries` are those of `ids`, each behind its row of `rows`."""
    assert [entry.id for entry in entries] == list(ids)
    for entry, row in zip(entries, rows, strict=True):
        assert entry.logprob == pytest.approx(row[entry.id], abs=1e-5)
        assert len(entry.top) == top
        if top:
            best = np.argsort(-row, kind="stable")[:top]
            assert [token for token, _ in entry.top] == best.tolist()
            np.testing.assert_allclose([value for _, value in entry.top], row[best], atol=1e-5)


@pytest.mark.parametrize("top", [0, 3, 20])
@pytest.mark.parametrize("speculation", [OFF, EIGHT], ids=["off", "8"])
@pytest.mark.parametrize("sampling", [Sampling(), HOT], ids=["greedy", "hot"])
async def test_of_every_token_drafted_or_not(
    tiny_package: Path,
    package: Package,
    reference: Reference,
    top: int,
    speculation: Speculation,
    sampling: Sampling,
) -> None:
    answer = reference.answer(PROMPT, 24, sampling)
    partly = [token if index % 5 else token ^ 1 for index, token in enumerate(answer)]
    async with running(tiny_package) as engine:
        engine.drafter_of = lambda: ScriptedDrafter(partly, package.manifest.target.vocab_size)
        said = await ask(
            engine, PROMPT, sampling=sampling, speculation=speculation, top_logprobs=top
        )
    assert said.ids == answer
    rows = reference.log_probabilities((*PROMPT, *answer))[len(PROMPT) - 1 : -1]
    check(said.logprobs, answer, rows, top)
    if speculation is EIGHT:
        assert {"scripted", "target"} == set(said.sources)
    if sampling is HOT:
        ranks = [int((row > row[token]).sum()) for row, token in zip(rows, answer, strict=True)]
        assert max(ranks) > package.manifest.target.top_k, "one came from the whole row"


async def test_none_where_none_are_asked_for(tiny_package: Path) -> None:
    async with running(tiny_package) as engine:
        said = await ask(engine, PROMPT)
    assert (said.logprobs, said.scored) == ([], None)


async def test_at_once_and_in_packed_runs(tiny_package: Path, reference: Reference) -> None:
    """Every request reads its own rows, before the next run has overwritten them."""
    prompts = [make_prompt(length, seed=length) for length in (5, 30, 60, 17)]
    async with running(tiny_package) as engine:
        answers = await asyncio.gather(
            *(ask(engine, prompt, sampling=HOT, top_logprobs=2) for prompt in prompts)
        )
        assert max(len(run) for run in engine.target.runs) == 4
    for prompt, said in zip(prompts, answers, strict=True):
        rows = reference.log_probabilities((*prompt, *said.ids))[len(prompt) - 1 : -1]
        check(said.logprobs, said.ids, rows, 2)


class TestPrompts:
    def scored(self, said: Answered) -> list[TokenLogprob]:
        assert said.scored is not None
        first, *others = said.scored.logprobs
        assert first is None, "nothing comes before the first token"
        return [entry for entry in others if entry is not None]

    @pytest.mark.parametrize("chunk", [None, 1, 2, 7, 149, 150])
    async def test_every_token_is_scored(
        self, tiny_package: Path, reference: Reference, chunk: int | None
    ) -> None:
        async with running(tiny_package) as engine:
            # What is in the slot must not keep it from being scored.
            await ask(engine, LONG, max_tokens=0)
            said = await ask(
                engine,
                LONG,
                max_tokens=5,
                prompt_logprobs=True,
                top_logprobs=2,
                prefill_chunk=chunk,
            )
            widths = {len(row.tokens) for run in engine.target.runs[1:] for row in run}
        rows = reference.log_probabilities((*LONG, *said.ids))
        check(self.scored(said), LONG[1:], rows[: len(LONG) - 1], 2)
        check(said.logprobs, said.ids, rows[len(LONG) - 1 : -1], 2)
        assert said.ids == reference.answer(LONG, 5)
        assert said.finished.usage.cached_tokens == 0
        assert max(widths) <= 64, "whole rows are as wide as the vocabulary"

    async def test_the_prompt_alone(self, tiny_package: Path, reference: Reference) -> None:
        async with running(tiny_package) as engine:
            said = await ask(engine, PROMPT, max_tokens=0, prompt_logprobs=True)
        check(self.scored(said), PROMPT[1:], reference.log_probabilities(PROMPT)[:-1], 0)
        assert (said.ids, said.finished.reason) == ([], "length")

    async def test_a_prompt_of_one_token(self, tiny_package: Path) -> None:
        async with running(tiny_package) as engine:
            said = await ask(engine, (7,), max_tokens=1, prompt_logprobs=True)
        assert self.scored(said) == []

    async def test_log_probabilities_of_the_answer_are_another_question(
        self, tiny_package: Path
    ) -> None:
        async with running(tiny_package) as engine:
            said = await ask(engine, PROMPT, max_tokens=3, prompt_logprobs=True)
        assert len(self.scored(said)) == len(PROMPT) - 1
        assert said.logprobs == []


def test_rows_from_a_place_on() -> None:
    rows = DenseRows([DenseRow(np.full(4, index, np.float32)) for index in range(3)])
    assert RowsFrom(rows, 2).row(0) is rows.rows[2]
    assert RowsFrom(rows, 0).row(1) is rows.rows[1]


def test_scores_stop_with_the_prompt() -> None:
    rows = DenseRows([DenseRow(np.log(np.array([0.5, 0.25, 0.25], np.float32)))] * 2)
    scores = PromptScores((0, 1, 2), top=1)
    scores.add(rows, 2)
    scores.add(rows, 1)
    first, second, third = scores.event().logprobs
    assert first is None
    assert second is not None
    assert third is not None
    assert (second.id, third.id) == (1, 2)
    assert second.logprob == pytest.approx(np.log(0.25))
    ((best, logprob),) = second.top
    assert (best, logprob) == (0, pytest.approx(np.log(0.5)))
