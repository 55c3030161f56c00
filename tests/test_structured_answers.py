"""Answers of a given form: always of that form, and the same whatever was drafted."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from gateway.engine.requests import GenerationRequest, Speculation
from models.constraints.source import ConstraintSource
from models.draft import Draft
from models.drafters.learned import LearnedModels
from models.errors import UserError
from models.package import Package
from models.sampling.parameters import Sampling
from tests.constraints_support import RECORD, json_schema, lark, random_schema, regex
from tests.drafters_support import CPU
from tests.engine_support import (
    GREEDY,
    OFF,
    Answered,
    TestEngine,
    ask,
    is_idle,
    make_prompt,
    running,
)

PROMPTS = [make_prompt(10 + 9 * seed, seed=seed) for seed in range(4)]
HOT = Sampling(temperature=1.2, top_p=0.95, seed=17)
PENALISED = Sampling(temperature=0.9, seed=4, frequency_penalty=0.4, top_k=20)
WIDE = Speculation(policy="fixed", length=8)
FORCING = Speculation(policy="fixed", length=16)
AUTO = Speculation()
WAYS = (WIDE, FORCING, AUTO, Speculation(policy="fixed", length=1))
SCHEMAS = 24


async def structured(
    engine: TestEngine, prompt: tuple[int, ...], source: ConstraintSource, **fields: Any
) -> Answered:
    known = {"max_tokens": 150, "ignore_eos": False, "constraint": source, **fields}
    return await ask(engine, prompt, **known)


@pytest.fixture
async def engine(tiny_package: Path) -> AsyncIterator[TestEngine]:
    async with running(tiny_package, context=256) as engine:
        yield engine


def require_valid(said: Answered, schema: Any) -> None:
    assert said.finished.reason == "stop"
    jsonschema.validate(json.loads(said.text), schema)


@pytest.mark.parametrize("sampling", [GREEDY, HOT, PENALISED], ids=["greedy", "hot", "penalised"])
async def test_valid_and_the_same_with_and_without_speculation(
    engine: TestEngine, sampling: Sampling
) -> None:
    """vllm#15554, #53777, lmdeploy#4551."""
    source = json_schema(RECORD)
    for prompt in PROMPTS:
        plain = await structured(engine, prompt, source, speculation=OFF, sampling=sampling)
        require_valid(plain, RECORD)
        assert plain.finished.timings.by_drafter == {}
        for way in WAYS:
            said = await structured(engine, prompt, source, speculation=way, sampling=sampling)
            assert (said.ids, said.text) == (plain.ids, plain.text), way
            assert said.finished.usage.completion_tokens == len(plain.ids)
    assert is_idle(engine)


async def test_any_schema_of_a_family_many_at_once(engine: TestEngine) -> None:
    """The answers validate, and are those without drafts."""
    schemas = [random_schema(random.Random(seed)) for seed in range(SCHEMAS)]

    async def compare(index: int) -> None:
        source, prompt = json_schema(schemas[index]), PROMPTS[index % 4]
        sampling = HOT if index % 2 else GREEDY
        said, plain = await asyncio.gather(
            structured(engine, prompt, source, speculation=WAYS[index % 3], sampling=sampling),
            structured(engine, prompt, source, speculation=OFF, sampling=sampling),
        )
        require_valid(said, schemas[index])
        assert said.ids == plain.ids

    for first in range(0, SCHEMAS, 4):
        await asyncio.gather(*(compare(index) for index in range(first, first + 4)))
    assert is_idle(engine)


@pytest.mark.parametrize("rule", ["coupled", "classic", "typical", "adasd"])
@pytest.mark.parametrize("drafter", ["ngram", "eagle3", "ngram+draft-model", "medusa"])
async def test_valid_whoever_drafts_and_however_it_is_verified(
    drafting: Package, drafter: str, rule: str
) -> None:
    source = json_schema(RECORD)
    policy = "adasd" if rule == "adasd" else "fixed"
    async with running(drafting.path, learned=LearnedModels(drafting, CPU)) as engine:
        for seed, prompt in enumerate(PROMPTS[:2]):
            way = Speculation(drafter, policy, 5, rule=rule)  # type: ignore[arg-type]
            sampling = Sampling(temperature=1.0, seed=seed)
            said = await structured(engine, prompt, source, speculation=way, sampling=sampling)
            require_valid(said, RECORD)
            if rule == "coupled":
                plain = await structured(engine, prompt, source, speculation=OFF, sampling=sampling)
                assert said.ids == plain.ids


async def test_valid_with_drafts_that_branch(drafting: Package) -> None:
    trees = Speculation("ngram+eagle3", "fixed", 10, branches=3)
    async with running(drafting.path, learned=LearnedModels(drafting, CPU)) as engine:
        for prompt in PROMPTS:
            said = await structured(engine, prompt, json_schema(RECORD), speculation=trees)
            require_valid(said, RECORD)


async def test_forced_tokens_are_drafted_and_counted(engine: TestEngine) -> None:
    schema = {"const": {"the other": "in the beginning and the end of the other thing"}}
    plain = await structured(engine, PROMPTS[0], json_schema(schema), speculation=OFF)
    said = await structured(engine, PROMPTS[0], json_schema(schema), speculation=FORCING)
    assert said.ids == plain.ids
    timings = said.finished.timings
    forced = timings.by_drafter["grammar"]
    assert list(timings.by_drafter) == ["grammar"]
    assert forced.draft_n == forced.draft_n_accepted == timings.draft_n_accepted
    assert plain.finished.timings.rounds == len(plain.ids) - 1, "the end costs no run of its own"
    assert timings.rounds <= -(-len(said.ids) // 16)
    assert set(said.sources) == {"target", "grammar"}
    for answered in (plain, said):
        require_every_token_counted(answered)
    assert timings.alpha == 1
    assert timings.tau is not None
    assert timings.tau > 8
    assert sum(source == "grammar" for source in said.sources) == forced.draft_n_accepted


async def test_forced_and_chosen_tokens_add_up(engine: TestEngine) -> None:
    for way in (*WAYS, OFF):
        for prompt in PROMPTS[:2]:
            said = await structured(engine, prompt, json_schema(RECORD), speculation=way)
            require_every_token_counted(said)


def require_every_token_counted(said: Answered) -> None:
    """The prompt's run makes the first token; each round makes its accepted drafts and one more,
    but where the answer ends with its last draft."""
    timings, usage = said.finished.timings, said.finished.usage
    assert usage.completion_tokens == len(said.ids) == len(said.sources)
    made = 1 + timings.draft_n_accepted + timings.rounds
    assert made - 1 <= len(said.ids) <= made
    assert sum(each.draft_n_accepted for each in timings.by_drafter.values()) == (
        timings.draft_n_accepted
    )
    drafted = sum(source != "target" for source in said.sources)
    assert drafted == timings.draft_n_accepted
    if timings.rounds:
        assert timings.tau is not None
        # A run that makes the end as well made one token more than is told.
        assert len(said.ids) - 1 <= round(timings.tau * timings.rounds) <= len(said.ids)


class Parrot:
    """Proposes the same tokens again and again, whatever the grammar makes of them."""

    name = "parrot"

    def __init__(self, tokens: list[int], tree: bool = False) -> None:
        self.tokens = tokens
        self.tree = tree

    def reset(self, tokens: object) -> None:
        return

    def propose(self, budget: int) -> Draft:
        tokens = tuple(self.tokens[:budget])
        return Draft(tokens, parents=(-1,) * len(tokens) if self.tree else None, source=self.name)

    def commit(self, tokens: object) -> None:
        return


@pytest.mark.parametrize("tree", [False, True])
async def test_what_the_grammar_forbids_is_not_verified(engine: TestEngine, tree: bool) -> None:
    source = regex("[0-9]{40}")
    digits = [engine.tokenizer.encode(digit)[0] for digit in "0123456789"]
    letter = engine.tokenizer.encode("z")[0]
    plain = await structured(engine, PROMPTS[0], source, speculation=OFF)
    way = Speculation(policy="fixed", length=4, branches=4 if tree else 1)
    engine.drafter_of = lambda: Parrot([letter, *digits[:3]], tree)
    forbidden = await structured(engine, PROMPTS[0], source, speculation=way)
    engine.drafter_of = lambda: Parrot([digits[3], letter, *digits[:2]], tree)
    partly = await structured(engine, PROMPTS[0], source, speculation=way)
    if not tree:
        assert forbidden.ids == partly.ids == plain.ids
        assert forbidden.finished.timings.draft_n == 0
        assert partly.finished.timings.draft_n == partly.finished.timings.rounds
    assert all(re.fullmatch("[0-9]{40}", said.text) for said in (plain, forbidden, partly))
    verified = {token for run in engine.target.runs for row in run for token in row.tokens[1:]}
    assert letter not in verified - {token for prompt in PROMPTS for token in prompt}


@pytest.mark.parametrize("speculation", [OFF, WIDE], ids=["off", "on"])
async def test_regular_expressions_and_grammars(
    engine: TestEngine, speculation: Speculation
) -> None:
    for sampling in (GREEDY, HOT):
        said = await structured(
            engine, PROMPTS[1], regex("(the|an) [a-z]{3,8}[.!]"), speculation=speculation
        )
        assert re.fullmatch("(the|an) [a-z]{3,8}[.!]", said.text)
        said = await structured(
            engine,
            PROMPTS[1],
            lark('start: item (" and " item){2}\nitem: /[a-z]{2}/ | /[0-9]{2}/'),
            speculation=speculation,
            sampling=sampling,
        )
        assert re.fullmatch("([a-z]{2}|[0-9]{2})( and ([a-z]{2}|[0-9]{2})){2}", said.text)
        assert said.finished.reason == "stop"


@pytest.mark.parametrize("speculation", [OFF, FORCING], ids=["off", "on"])
async def test_the_limit_cuts_it(engine: TestEngine, speculation: Speculation) -> None:
    whole = await structured(engine, PROMPTS[0], json_schema(RECORD), speculation=OFF)
    for limit in (1, 5, len(whole.ids) - 1):
        said = await structured(
            engine, PROMPTS[0], json_schema(RECORD), speculation=speculation, max_tokens=limit
        )
        assert said.finished.reason == "length"
        assert said.ids == whole.ids[:limit]
    said = await structured(
        engine, PROMPTS[0], json_schema(RECORD), speculation=speculation, max_tokens=len(whole.ids)
    )
    assert (said.ids, said.finished.reason) == (whole.ids, "length")


async def test_a_stop_string_cuts_it(engine: TestEngine) -> None:
    for speculation in (OFF, FORCING):
        said = await structured(
            engine, PROMPTS[0], json_schema(RECORD), speculation=speculation, stop=('"age"',)
        )
        assert (said.finished.reason, said.finished.stop) == ("stop", '"age"')
        assert said.text.startswith('{"name": "')
        assert '"age"' not in said.text


async def test_log_probabilities_stay_the_targets_own(engine: TestEngine) -> None:
    fields = {"top_logprobs": 2, "max_tokens": 12}
    on = await structured(engine, PROMPTS[2], json_schema(RECORD), speculation=FORCING, **fields)
    off = await structured(engine, PROMPTS[2], json_schema(RECORD), speculation=OFF, **fields)
    assert on.logprobs == off.logprobs
    assert min(entry.logprob for entry in on.logprobs) < -1, "forced, not likely"


async def test_what_contradicts_a_form_is_refused(engine: TestEngine) -> None:
    source = ConstraintSource("json_object", param="text.format")
    for param, fields in (
        ("min_tokens", {"sampling": Sampling(min_tokens=2)}),
        ("ignore_eos", {"ignore_eos": True}),
        ("speculation.rule", {"speculation": Speculation(rule="synthetic")}),
    ):
        known: dict[str, Any] = {"constraint": source, **fields}
        request = GenerationRequest(PROMPTS[0], **known)
        with pytest.raises(UserError, match=r"text\.format") as caught:
            engine.open(request)
        assert (caught.value.code, caught.value.param) == ("unsupported_value", param)


async def test_a_form_that_cannot_be_compiled_fails_its_answer_alone(engine: TestEngine) -> None:
    with pytest.raises(UserError, match="is no regular expression that can be used"):
        await engine.compile(regex("("))
    with pytest.raises(UserError, match="is no regular expression that can be used"):
        await structured(engine, PROMPTS[0], regex("("))
    assert is_idle(engine)
    assert len((await ask(engine, PROMPTS[0])).ids) == 24
