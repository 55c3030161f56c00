"""Reported elsewhere: penalties that speculation changed or forgot.

Answers are compared with ones whose processing is written out naively, token by token.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gateway.engine.requests import Speculation
from models.package import Package
from models.sampling.parameters import Sampling
from models.tokenizer import StreamDecoder
from tests.chat_requests import post
from tests.engine_support import OFF, ScriptedDrafter, ask, build_engine, make_prompt, running
from tests.http_serving import serving
from tests.pitfalls_support import PlainRows, SteadyTarget

PROMPT = make_prompt(30)
SHORT = make_prompt(6, seed=2)
COUNT = 40
ONE = Speculation(policy="fixed", length=1)
EIGHT = Speculation(policy="fixed", length=8)
PENALTIES: dict[str, Any] = {
    "repetition_penalty": 1.6,
    "presence_penalty": 1.5,
    "frequency_penalty": 0.8,
}


@pytest.fixture(scope="module")
def rows(package: Package) -> PlainRows:
    return PlainRows(package)


@pytest.mark.parametrize("speculation", [OFF, ONE, Speculation(policy="fixed", length=3), EIGHT])
@pytest.mark.parametrize("name", [*PENALTIES, "all"])
async def test_penalties_count_one_token_per_step(
    tiny_package: Path, rows: PlainRows, name: str, speculation: Speculation
) -> None:
    """sglang#33643, #28200: every token of a round counts, and drafts for the rows behind them.

    The drafter knows the answer, so that whole blocks are accepted; then it is wrong now and then.
    """
    penalties = PENALTIES if name == "all" else {name: PENALTIES[name]}
    sampling = Sampling(**penalties)
    answer = rows.likeliest(PROMPT, COUNT, sampling)
    partly = [token if index % 4 else token ^ 1 for index, token in enumerate(answer)]
    assert answer != rows.likeliest(PROMPT, COUNT, Sampling()), "penalties matter here"
    async with running(tiny_package) as engine:
        for script in (answer, partly):
            engine.drafter_of = lambda script=script: ScriptedDrafter(script, 300)
            said = await ask(
                engine, PROMPT, max_tokens=COUNT, sampling=sampling, speculation=speculation
            )
            assert said.ids == answer
            assert speculation is OFF or said.finished.timings.draft_n_accepted > 10


@pytest.mark.parametrize("name", [*PENALTIES, "logit_bias"])
async def test_penalties_are_silently_ignored_under_speculation(
    tiny_package: Path, rows: PlainRows, name: str
) -> None:
    """TRT-LLM#17701: over the wire, drafted with what would be said without them."""
    plain = rows.likeliest(PROMPT, COUNT, Sampling())
    value: Any = {str(plain[5]): -100.0} if name == "logit_bias" else PENALTIES[name]
    of_engine = ((plain[5], -100.0),) if name == "logit_bias" else value
    answer = rows.likeliest(PROMPT, COUNT, Sampling(**{name: of_engine}))
    assert answer != plain
    async with running(tiny_package) as engine, serving(engine) as served:
        texts = []
        for script in (plain, answer):
            engine.drafter_of = lambda script=script: ScriptedDrafter(script, 300)
            for speculation in ({"off": True}, {"policy": "fixed", "length": 8}):
                whole = await post(
                    served,
                    path="completions",
                    prompt=list(PROMPT),
                    max_tokens=COUNT,
                    ignore_eos=True,
                    speculation=speculation,
                    **{name: value},
                )
                texts.append(whole["choices"][0]["text"])
        refused = await post(served, 400, path="completions", prompt=list(PROMPT), **{name: "much"})
        assert texts == [StreamDecoder(engine.tokenizer).push(answer)] * 4
    assert refused["error"]["param"] == name


@pytest.mark.parametrize("length", [0, 1, 2, 3, 5, 8])
async def test_the_last_sampled_token_is_counted_twice(package: Package, length: int) -> None:
    """vllm#33251: by hand. The logits are 3.5 and 2 at every place, and each time a token is said
    it loses 1: counted twice, the second token would be said at once."""
    logits = np.full(package.manifest.target.vocab_size, -20.0, np.float32)
    first, second = 65, 66
    logits[first], logits[second] = 3.5, 2.0
    #  3.5, 2.5 against 2; 1.5 against 2; 1.5, 0.5 against 1; ...
    answer = [first, first, second, first, second, first, second, first, second, first]
    engine = build_engine(package)
    engine.service._run = SteadyTarget(logits).run
    speculation = Speculation(policy="fixed", length=length) if length else OFF
    try:
        for script in (answer, [first] * 10, [second] * 10):
            engine.drafter_of = lambda script=script: ScriptedDrafter(script, 300)
            said = await ask(
                engine,
                SHORT,
                max_tokens=10,
                sampling=Sampling(frequency_penalty=1.0),
                speculation=speculation,
            )
            assert said.ids == answer
    finally:
        await engine.close()
