"""Calls as the engine ends and guides them: one alone, and those whose form cannot be followed."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.calls.reader import AnswerReader
from gateway.calls.scope import CallScope
from gateway.engine.constraints import Constraints
from gateway.engine.requests import Speculation
from models.errors import UserError
from models.sampling.parameters import Sampling
from tests.calls_support import HERMES
from tests.constraints_support import compiler_of, json_schema, lark
from tests.engine_support import OFF, TestEngine, ask, is_idle, make_prompt, running
from tests.test_constraints_lenient import DEEP

CALL = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'
PROMPT = make_prompt(12)
WAYS = (OFF, Speculation(), Speculation("ngram", "fixed", 8))
HOT = Sampling(temperature=1.1, seed=5)


@pytest.fixture
async def engine(tiny_package: Path) -> AsyncIterator[TestEngine]:
    async with running(tiny_package, context=256) as engine:
        yield engine


@pytest.mark.parametrize("way", WAYS, ids=["off", "auto", "fixed"])
async def test_an_answer_of_one_call_ends_behind_it(engine: TestEngine, way: Speculation) -> None:
    """Also where the rest of a round's draft was accepted."""
    said = f"So. {CALL}\n{CALL} And more."
    form = lark(f"start: {json.dumps(said)}")
    fields = {"constraint": form, "ignore_eos": False, "max_tokens": 200, "speculation": way}

    def scope() -> CallScope:
        return CallScope(AnswerReader(HERMES, calls=True, single=True))

    whole = await ask(engine, PROMPT, **fields)
    assert (whole.text, whole.finished.reason) == (said, "stop")
    one = await ask(engine, PROMPT, **fields, stop_scope=scope)
    assert (one.text, one.finished.reason, one.finished.stop) == (f"So. {CALL}", "stop", None)
    assert one.ids == whole.ids[: len(one.ids)]
    assert one.finished.usage.completion_tokens == len(one.ids) < len(whole.ids)
    assert is_idle(engine)


async def test_what_is_lenient_ends_no_answer(engine: TestEngine) -> None:
    """Behind the first value the grammar grows too large: the rest is what the model writes."""
    strict = json_schema(DEEP, "tools")
    await engine.constraints.close()
    # However busy the machine is.
    engine.constraints = Constraints(compiler_of(engine.package), seconds=300.0)
    fields = {"ignore_eos": False, "max_tokens": 60, "sampling": HOT}
    with pytest.raises(UserError, match="grew too large") as failed:
        await ask(engine, PROMPT, **fields, constraint=strict)
    assert failed.value.code == "constraint_failed"
    lenient = replace(strict, lenient=True)
    answers = [
        await ask(engine, PROMPT, **fields, constraint=lenient, speculation=way) for way in WAYS
    ]
    for answered in answers:
        assert re.match(r'\{"first": "[a-z]{12}', answered.text)
        assert '", "then": {"' not in answered.text
        assert answered.ids == answers[0].ids
        assert len(answered.ids) > 30 or answered.finished.reason == "stop"
    assert is_idle(engine)
