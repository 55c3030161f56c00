"""Structured output over the wire: scripted, then on the tiny package with the real clients."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import jsonschema
import openai
import pytest
from openai import AsyncOpenAI
from openai.types.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from gateway.engine.engine import Engine
from gateway.engine.options import EngineOptions
from models.constraints.source import ConstraintSource
from models.errors import UserError
from models.package import load_package
from tests.chat_requests import content_of, post, stream
from tests.constraints_support import RECORD
from tests.fake_engine import FakeEngine
from tests.http_serving import Served, ask, serving, socket_to

CHAT = {"type": "json_schema", "json_schema": {"name": "record", "schema": RECORD, "strict": True}}
TEXT = {"format": {"type": "json_schema", "name": "record", "schema": RECORD, "strict": True}}
OFF = {"off": True}


async def test_a_form_is_compiled_before_the_answer_is_opened() -> None:
    engine = FakeEngine("{}")
    async with serving(engine) as served, socket_to(served) as socket:
        await ask(socket, input="Hi", text={"format": {"type": "json_object"}})
        await post(served, response_format={"type": "regex", "regex": "a"})
        await post(served, path="completions", prompt="Hi", response_format={"type": "json_object"})
        await ask(socket, input="Hi")
    expected = [
        ConstraintSource("json_object"),
        ConstraintSource("regex", "a"),
        ConstraintSource("json_object"),
    ]
    assert engine.compiled == expected
    assert [request.constraint for request in engine.requests] == [*expected, None]


async def test_a_form_that_cannot_be_compiled_is_a_400_that_names_it() -> None:
    engine = FakeEngine("{}")
    engine.refused = UserError("text.format.regex is bad.", code="invalid_value", param="text.f")
    async with serving(engine) as served, socket_to(served) as socket:
        (event,) = await ask(socket, input="Hi", text={"format": {"type": "regex", "regex": "("}})
        body = await post(served, 400, response_format={"type": "regex", "regex": "("})
    assert (event["status"], event["error"]["param"]) == (400, "text.f")
    assert (body["error"]["code"], body["error"]["param"]) == ("invalid_value", "text.f")
    assert engine.requests == []


async def test_the_response_repeats_its_format() -> None:
    async with serving(FakeEngine("{}")) as served, socket_to(served) as socket:
        events = await ask(socket, input="Hi", text=TEXT)
        plain = await ask(socket, input="Hi")
    for event in (events[0], events[-1]):
        assert event["response"]["text"] == TEXT
        Response.model_validate(event["response"], strict=True)
    assert plain[-1]["response"]["text"] == {"format": {"type": "text"}}


@pytest.fixture
async def engine(tiny_package: Path) -> AsyncIterator[Engine]:
    started = await Engine.start(load_package(tiny_package), EngineOptions(slots=2, queue=4))
    yield started
    await started.close()


@pytest.fixture
async def served(engine: Engine) -> AsyncIterator[Served]:
    async with serving(engine) as running:
        yield running


def require_record(text: str) -> None:
    jsonschema.validate(json.loads(text), RECORD)


async def test_chat_answers_by_a_schema(served: Served) -> None:
    whole = await post(served, response_format=CHAT, max_tokens=100)
    plain = await post(served, response_format=CHAT, max_tokens=100, speculation=OFF)
    events = await stream(served, response_format=CHAT, max_tokens=100)
    (choice,) = whole["choices"]
    require_record(choice["message"]["content"])
    assert choice["finish_reason"] == "stop"
    assert choice["timings"]["by_drafter"]["grammar"]["draft_n_accepted"] > 0
    assert plain["choices"][0]["message"] == choice["message"]
    assert content_of(events) == choice["message"]["content"]


async def test_responses_answer_by_a_schema(served: Served) -> None:
    async with socket_to(served) as socket:
        events = await ask(
            socket, input="Hi", text=TEXT, max_output_tokens=100, include=["speculation"]
        )
        cut = await ask(socket, input="Hi", text=TEXT, max_output_tokens=8)
    response = events[-1]["response"]
    assert response["status"] == "completed"
    require_record(response["output"][0]["content"][0]["text"])
    marks = [event["speculation"] for event in events if "speculation" in event]
    assert any("grammar" in mark["sources"] for mark in marks)
    assert cut[-1]["response"]["status"] == "incomplete"
    assert cut[-1]["response"]["incomplete_details"] == {"reason": "max_output_tokens"}


async def test_completions_and_several_choices_by_an_expression(served: Served) -> None:
    form = {"type": "regex", "regex": "[a-z]{3} [0-9]{2}"}
    body = await post(
        served, path="completions", prompt="Hi", response_format=form, n=3, temperature=1, seed=5
    )
    texts = [choice["text"] for choice in body["choices"]]
    assert all(re.fullmatch(form["regex"], text) for text in texts)
    assert len(set(texts)) > 1


class Record(BaseModel):
    """What the openai client asks for, and reads."""

    model_config = ConfigDict(extra="forbid")
    name: str = Field(max_length=6)
    age: int = Field(ge=0, le=120)


async def test_the_openai_client_parses_answers(served: Served) -> None:
    async with AsyncOpenAI(base_url=served.base, api_key="none") as client:
        messages: Any = [{"role": "user", "content": "Hi"}]
        chat = await client.chat.completions.parse(
            model="tiny", messages=messages, response_format=Record, max_tokens=100
        )
        assert isinstance(chat.choices[0].message.parsed, Record)
        response = await client.responses.parse(
            model="tiny", input="Hi", text_format=Record, max_output_tokens=100
        )
        assert isinstance(response.output_parsed, Record)
        with pytest.raises(openai.BadRequestError) as caught:
            await client.chat.completions.create(
                model="tiny",
                messages=messages,
                extra_body={"response_format": {"type": "regex", "regex": "(a"}},
            )
    assert caught.value.param == "response_format.regex"
    assert caught.value.code == "invalid_value"
