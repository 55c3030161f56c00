"""Predictions on the tiny model: the answer is the same, and what was verified is counted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from gateway.engine.requests import GenerationRequest, Prediction, Speculation
from models.drafters.learned import LearnedModels
from models.drafters.predicted import PredictedText
from models.package import Package
from models.sampling.parameters import Sampling
from tests.constraints_support import RECORD, json_schema, regex
from tests.drafters_support import CPU
from tests.engine_support import (
    OFF,
    Answered,
    TestEngine,
    ask,
    is_idle,
    make_prompt,
    read,
    running,
    until,
)
from tests.prediction_support import PLAIN, biased

COUNT = 48
PROMPTS = [make_prompt(12 + 7 * seed, seed=seed) for seed in range(4)]
GREEDY = Sampling()
HOT = Sampling(temperature=1.2, top_p=0.95, seed=17)
PENALISED = Sampling(temperature=0.9, seed=4, frequency_penalty=0.4, top_k=20)
SAMPLINGS = pytest.mark.parametrize(
    "sampling", [GREEDY, HOT, PENALISED], ids=["greedy", "hot", "penalised"]
)
AUTO = Speculation()
WIDE = Speculation("prediction", "fixed", 8)
WAYS = (
    AUTO,
    WIDE,
    Speculation("ngram", "fixed", 3),
    Speculation("prediction"),
    Speculation(policy="ema-tiers"),
    Speculation(policy="confidence"),
    Speculation(policy="slo", tpot_ms=5.0),
)


@pytest.fixture
async def engine(tiny_package: Path) -> AsyncIterator[TestEngine]:
    async with running(tiny_package, context=256) as engine:
        yield engine


async def said(
    engine: TestEngine, prompt: tuple[int, ...], sampling: Sampling, **fields: Any
) -> Answered:
    biased_too = replace(sampling, logit_bias=biased(engine.tokenizer))
    return await ask(engine, prompt, **{"max_tokens": COUNT, "sampling": biased_too, **fields})


def altered(text: str) -> str:
    """A character replaced, some left out, some put in."""
    return text[:10] + "?" + text[11:20] + text[24:34] + "...." + text[34:]


def predictions(text: str) -> list[str]:
    return [
        text,
        altered(text),
        "\n " + text,
        text[: COUNT // 2],
        text + PLAIN,
        text[COUNT // 2 :],
        text[:5] * 9,
        "the other and the one",
        PLAIN,
        "é" + text,
        "x",
    ]


@SAMPLINGS
async def test_the_answer_is_the_same_whatever_was_predicted(
    engine: TestEngine, sampling: Sampling
) -> None:
    plain = await said(engine, PROMPTS[0], sampling, speculation=OFF)
    assert len(plain.text) == COUNT
    drafted = 0
    for way in WAYS:
        for text in predictions(plain.text):
            answered = await said(
                engine, PROMPTS[0], sampling, speculation=way, prediction=Prediction(text)
            )
            assert (answered.ids, answered.text) == (plain.ids, plain.text), (way, text)
            require_counts(answered)
            drafted += "prediction" in answered.finished.timings.by_drafter
    assert drafted > len(WAYS) * 5
    assert is_idle(engine)


def require_counts(answered: Answered) -> None:
    """What is counted as accepted is what the tokens are marked with."""
    for name, part in answered.finished.timings.by_drafter.items():
        assert part.draft_n_accepted == answered.sources.count(name)
        assert part.draft_n >= part.draft_n_accepted


@SAMPLINGS
async def test_a_right_prediction_is_accepted_whole(engine: TestEngine, sampling: Sampling) -> None:
    plain = await said(engine, PROMPTS[1], sampling, speculation=OFF)
    answered = await said(
        engine, PROMPTS[1], sampling, speculation=WIDE, prediction=Prediction(plain.text)
    )
    timings = answered.finished.timings
    assert timings.drafter == "prediction"
    part = timings.by_drafter["prediction"]
    # The first token is the prompt's; of what is left a round takes nine.
    assert timings.rounds == -(-(COUNT - 1) // 9)
    assert part.draft_n == part.draft_n_accepted == COUNT - 1 - timings.rounds
    assert set(answered.sources) == {"target", "prediction"}


async def test_the_policy_goes_as_far_as_it_pays(engine: TestEngine) -> None:
    plain = await said(engine, PROMPTS[1], GREEDY, speculation=OFF, max_tokens=150)
    alone = Speculation("prediction")
    right = await said(
        engine,
        PROMPTS[1],
        GREEDY,
        speculation=alone,
        max_tokens=150,
        prediction=Prediction(plain.text),
    )
    bounded = await said(
        engine,
        PROMPTS[1],
        GREEDY,
        speculation=replace(alone, length=4),
        max_tokens=150,
        prediction=Prediction(plain.text),
    )
    assert right.ids == bounded.ids == plain.ids
    assert right.finished.timings.rounds < 12, "rounds are wider than others' drafts may be"
    assert max(len(row.tokens) for run in engine.target.runs for row in run) <= 32
    assert bounded.finished.timings.rounds >= 149 / 5


async def test_an_edit_is_found_again(engine: TestEngine) -> None:
    plain = await said(engine, PROMPTS[2], HOT, speculation=OFF)
    answered = await said(
        engine, PROMPTS[2], HOT, speculation=WIDE, prediction=Prediction(altered(plain.text))
    )
    assert answered.ids == plain.ids
    part = answered.finished.timings.by_drafter["prediction"]
    assert part.draft_n_accepted > COUNT / 2
    assert part.draft_n > part.draft_n_accepted


@pytest.mark.parametrize("speculation", [OFF, Speculation("off"), Speculation("prediction", "off")])
async def test_who_switches_speculation_off_is_drafted_nothing(
    engine: TestEngine, speculation: Speculation
) -> None:
    answered = await said(
        engine, PROMPTS[0], GREEDY, speculation=speculation, prediction=Prediction(PLAIN)
    )
    assert answered.finished.timings.by_drafter == {}
    assert answered.finished.timings.drafter == "off"


async def test_the_drafter_without_a_prediction_drafts_nothing(engine: TestEngine) -> None:
    answered = await said(engine, PROMPTS[0], GREEDY, speculation=Speculation("prediction"))
    assert (answered.finished.timings.drafter, answered.finished.timings.draft_n) == ("off", 0)


async def test_many_at_once_each_with_its_own(engine: TestEngine) -> None:
    plain = [await said(engine, prompt, HOT, speculation=OFF) for prompt in PROMPTS]

    async def one(index: int) -> Answered:
        # Every second one gets another's.
        text = plain[index if index % 2 else (index + 2) % 4].text
        return await said(
            engine, PROMPTS[index], HOT, speculation=WAYS[index % 3], prediction=Prediction(text)
        )

    for _ in range(3):
        answers = await asyncio.gather(*(one(index) for index in range(4)))
        assert [each.ids for each in answers] == [each.ids for each in plain]
        for each in answers:
            require_counts(each)
    assert is_idle(engine)


async def test_nobody_has_it_read_before_there_is_a_slot(
    tiny_package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[PredictedText] = []

    class Counted(PredictedText):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            made.append(self)

    monkeypatch.setattr("gateway.engine.predictions.PredictedText", Counted)
    prediction = Prediction(PLAIN)
    request = GenerationRequest(PROMPTS[0], max_tokens=8, prediction=prediction)
    async with running(tiny_package, slots=1, queue=8) as engine, AsyncExitStack() as stack:
        engine.target.gate.clear()
        before = GenerationRequest(PROMPTS[1], max_tokens=4, speculation=OFF)
        answers = [await stack.enter_async_context(engine.open(before))]
        await until(lambda: engine.status().free_slots == 0)
        for prompt in PROMPTS[1:3]:
            for choice in engine.open_choices(replace(request, prompt=prompt), 2):
                answers.append(await stack.enter_async_context(choice))
        await until(lambda: engine.status().waiting == 2)
        assert (made, prediction.made, prediction.making) == ([], None, None)
        engine.target.gate.set()
        await asyncio.gather(*(read(answer) for answer in answers))
    assert made == [prediction.made]


async def test_beside_learned_drafters_and_in_trees(drafting: Package) -> None:
    async with running(drafting.path, learned=LearnedModels(drafting, CPU)) as engine:
        plain = await said(engine, PROMPTS[0], GREEDY, speculation=OFF)
        prediction = Prediction(altered(plain.text))
        for way in (
            Speculation("eagle3", "fixed", 4),
            Speculation("ngram+draft-model"),
            Speculation("medusa", "fixed", 3, rule="coupled"),
        ):
            answered = await said(
                engine, PROMPTS[0], GREEDY, speculation=way, prediction=prediction
            )
            assert answered.ids == plain.ids
            assert answered.finished.timings.drafter == f"prediction+{way.drafter}"
            assert answered.finished.timings.by_drafter["prediction"].draft_n_accepted > 0
        tree = Speculation("ngram+eagle3", "fixed", 8, branches=3)
        answered = await said(engine, PROMPTS[0], GREEDY, speculation=tree, prediction=prediction)
        assert len(answered.ids) == COUNT
        assert answered.finished.timings.by_drafter["prediction"].draft_n_accepted > 0
        require_counts(answered)


@pytest.mark.parametrize("rule", ["classic", "typical", "adasd"])
async def test_every_rule_verifies_it(engine: TestEngine, rule: str) -> None:
    plain = await said(engine, PROMPTS[3], GREEDY, speculation=OFF)
    policy = "adasd" if rule == "adasd" else "fixed"
    way = Speculation("prediction", policy, 6, rule=rule)  # type: ignore[arg-type]
    for sampling in (GREEDY, HOT):
        answered = await said(
            engine, PROMPTS[3], sampling, speculation=way, prediction=Prediction(plain.text)
        )
        assert len(answered.ids) == COUNT
        require_counts(answered)
        if sampling is GREEDY and rule == "classic":
            assert answered.ids == plain.ids


@SAMPLINGS
async def test_an_answer_of_a_form_is_valid_and_the_same(
    engine: TestEngine, sampling: Sampling
) -> None:
    fields = {"max_tokens": 150, "ignore_eos": False, "sampling": sampling}
    for source in (json_schema(RECORD), regex("[A-Z0-9]{40}")):
        constrained = {**fields, "constraint": source}
        plain = await ask(engine, PROMPTS[0], **constrained, speculation=OFF)
        other = await ask(engine, PROMPTS[1], **constrained, speculation=OFF)
        for text in (plain.text, other.text, "{" + plain.text, "no JSON, and no capitals"):
            for way in (AUTO, WIDE):
                answered = await ask(
                    engine,
                    PROMPTS[0],
                    **constrained,
                    speculation=way,
                    prediction=Prediction(text),
                )
                assert (answered.ids, answered.finished.reason) == (plain.ids, "stop")
                require_counts(answered)
        if source.kind == "json_schema":
            jsonschema.validate(json.loads(plain.text), RECORD)
