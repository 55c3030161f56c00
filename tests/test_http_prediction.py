"""Predicted outputs over the wire: what is taken, what is refused, and what came of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletion
from openai.types.completion_usage import CompletionTokensDetails
from openai.types.responses import Response

from gateway.engine.engine import Engine
from gateway.engine.options import EngineOptions
from gateway.engine.requests import Prediction
from gateway.http.prediction import MOST_CHARACTERS, parse_prediction
from models.chat_template import ChatTemplate
from models.drafters.predicted import PredictedText
from models.errors import UserError
from models.package import load_package
from tests.chat_requests import MESSAGES, choice_chunks, content_of, post, stream
from tests.constraints_support import RECORD
from tests.fake_engine import FakeEngine
from tests.http_serving import Served, ask, serving, socket_to
from tests.prediction_support import biased

TEXT = "Hello, world"
PREDICTION = {"type": "content", "content": TEXT}
PARTS = [{"type": "text", "text": "Hello, "}, {"type": "text", "text": "world"}]
SCHEMA = {"type": "json_schema", "json_schema": {"name": "record", "schema": RECORD}}
TOOLS = [
    {
        "type": "function",
        "function": {"name": "look_up", "parameters": {"type": "object", "properties": {}}},
    }
]


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ({}, None),
        ({"prediction": None}, None),
        ({"prediction": PREDICTION}, TEXT),
        ({"prediction": {"type": "content", "content": PARTS}}, TEXT),
        ({"prediction": {**PREDICTION, "later": 1}}, TEXT),
        ({"prediction": {"type": "content", "content": ""}}, None),
        ({"prediction": {"type": "content", "content": []}}, None),
        ({"prediction": {"type": "content", "content": "é" * MOST_CHARACTERS}}, "é" * (1 << 17)),
    ],
)
def test_what_is_predicted(document: dict[str, Any], text: str | None) -> None:
    assert parse_prediction(document) == (None if text is None else Prediction(text))


BAD: list[tuple[Any, str, str]] = [
    (TEXT, "invalid_type", "prediction"),
    ([PREDICTION], "invalid_type", "prediction"),
    ({"content": TEXT}, "missing_required_parameter", "prediction.type"),
    ({"type": 3, "content": TEXT}, "invalid_type", "prediction.type"),
    ({"type": "text", "content": TEXT}, "unsupported_value", "prediction.type"),
    ({"type": "content"}, "missing_required_parameter", "prediction.content"),
    ({"type": "content", "content": 3}, "invalid_type", "prediction.content"),
    ({"type": "content", "content": ["x"]}, "invalid_type", "prediction.content[0]"),
    (
        {"type": "content", "content": [{"type": "image_url"}]},
        "unsupported_value",
        "prediction.content[0].type",
    ),
    (
        {"type": "content", "content": [*PARTS, {"type": "text"}]},
        "missing_required_parameter",
        "prediction.content[2].text",
    ),
    (
        {"type": "content", "content": "x" * (MOST_CHARACTERS + 1)},
        "unsupported_value",
        "prediction.content",
    ),
    (
        {"type": "content", "content": [{"type": "text", "text": "x" * MOST_CHARACTERS}] * 2},
        "unsupported_value",
        "prediction.content",
    ),
]


@pytest.mark.parametrize(("value", "code", "param"), BAD, ids=lambda value: str(value)[:50])
def test_a_bad_prediction_names_its_field(value: Any, code: str, param: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_prediction({"prediction": value})
    assert (caught.value.code, caught.value.param) == (code, param)
    assert param in caught.value.message


async def test_every_endpoint_takes_it_and_refuses_what_it_is_not() -> None:
    engine = FakeEngine(TEXT)
    bad = {"type": "content", "content": 3}
    async with serving(engine) as served, socket_to(served) as socket:
        await post(served, prediction=PREDICTION)
        await post(served, path="completions", prompt="Hi", prediction=PREDICTION)
        await ask(socket, input="Hi", prediction=PREDICTION)
        await ask(socket, input="Hi")
        bodies = [
            await post(served, 400, prediction=bad),
            await post(served, 400, path="completions", prompt="Hi", prediction=bad),
        ]
        (event,) = await ask(socket, input="Hi", prediction=bad)
    assert [request.prediction for request in engine.requests] == [*[Prediction(TEXT)] * 3, None]
    assert {body["error"]["param"] for body in bodies} == {"prediction.content"}
    assert (event["status"], event["error"]["param"]) == (400, "prediction.content")


async def test_all_prompts_and_choices_have_one() -> None:
    engine = FakeEngine(TEXT)
    async with serving(engine) as served:
        await post(served, path="completions", prompt=["a", "b", "c"], n=2, prediction=PREDICTION)
    first, *others = [request.prediction for request in engine.requests]
    assert len(others) == 2
    assert first == Prediction(TEXT)
    assert all(each is first for each in others)


async def test_what_openai_refuses_beside_it_goes_with_it() -> None:
    fields: dict[str, Any] = {
        "n": 3,
        "logprobs": True,
        "presence_penalty": 1,
        "frequency_penalty": 1,
        "max_completion_tokens": 50,
        "tools": TOOLS,
    }
    engine = FakeEngine(TEXT)
    async with serving(engine) as served:
        body = await post(served, prediction=PREDICTION, **fields)
    assert [choice["message"]["content"] for choice in body["choices"]] == [TEXT] * 3
    details = body["usage"]["completion_tokens_details"]
    assert details["accepted_prediction_tokens"] == 3 * 4
    assert details["rejected_prediction_tokens"] == 3 * 1


async def test_usage_counts_what_was_verified_of_it() -> None:
    async with serving(FakeEngine(TEXT)) as served:
        with_it = await post(served, prediction=PREDICTION)
        without = await post(served)
        events = await stream(served, prediction=PREDICTION, stream_options={"include_usage": True})
        text = await post(served, path="completions", prompt="Hi", prediction=PREDICTION)
    ChatCompletion.model_validate(with_it, strict=True)
    expected = {
        "reasoning_tokens": 0,
        "accepted_prediction_tokens": 4,
        "rejected_prediction_tokens": 1,
    }
    for usage in (with_it["usage"], events[-2]["usage"], text["usage"]):
        assert usage["completion_tokens_details"] == expected
        assert usage["completion_tokens"] == len(TEXT), "what was rejected is not in it"
        CompletionTokensDetails.model_validate(expected, strict=True)
    details = without["usage"]["completion_tokens_details"]
    assert details["accepted_prediction_tokens"] == details["rejected_prediction_tokens"] == 0


@pytest.fixture
async def engine(tiny_package: Path) -> AsyncIterator[Engine]:
    started = await Engine.start(load_package(tiny_package), EngineOptions(slots=2, queue=8))
    yield started
    await started.close()


@pytest.fixture
async def served(engine: Engine) -> AsyncIterator[Served]:
    async with serving(engine) as running:
        yield running


def plainly(engine: Engine) -> dict[str, Any]:
    """Fields of an answer in capitals and digits, which each are a token."""
    bias = {str(token): value for token, value in biased(engine.tokenizer)}
    return {"logit_bias": bias, "ignore_eos": True, "max_tokens": 40}


async def test_openais_client_is_answered_the_same_and_told_what_came_of_it(
    served: Served, engine: Engine
) -> None:
    fields = plainly(engine)
    known = {"logit_bias": fields["logit_bias"], "max_tokens": fields["max_tokens"]}
    extra: dict[str, Any] = {"ignore_eos": True, "speculation": {"policy": "fixed", "length": 8}}
    plain = await post(served, **fields, speculation={"off": True})
    text = plain["choices"][0]["message"]["content"]
    assert len(text) == 40
    async with AsyncOpenAI(base_url=served.base, api_key="none") as client:
        whole = await client.chat.completions.create(
            model="tiny",
            messages=MESSAGES,
            prediction={"type": "content", "content": text},
            **known,
            extra_body=extra,
        )
        streamed = await client.chat.completions.create(
            model="tiny",
            messages=MESSAGES,
            prediction={"type": "content", "content": [{"type": "text", "text": text}]},
            stream=True,
            stream_options={"include_usage": True},
            **known,
            extra_body=extra,
        )
        chunks = [chunk async for chunk in streamed]
    said = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert whole.choices[0].message.content == said == text
    for usage in (whole.usage, chunks[-1].usage):
        assert usage is not None
        assert usage.completion_tokens == 40
        details = usage.completion_tokens_details
        assert details is not None
        assert details.rejected_prediction_tokens == 0
        # Of 40 tokens the first is the prompt's, and each round of 8 adds one of the target's.
        assert details.accepted_prediction_tokens == 39 - 5


async def test_every_choice_is_drafted_for_itself(served: Served, engine: Engine) -> None:
    fields = {**plainly(engine), "temperature": 1.0, "seed": 5, "n": 3}
    plain = await post(served, **fields, speculation={"off": True})
    texts = [choice["message"]["content"] for choice in plain["choices"]]
    assert len(set(texts)) == 3
    predicted = {"type": "content", "content": texts[1]}
    events = await stream(
        served, **fields, prediction=predicted, stream_options={"include_usage": True}
    )
    assert [content_of(events, index) for index in range(3)] == texts
    parts = [choice_chunks(events, i)[-1]["timings"]["by_drafter"] for i in range(3)]
    counted = [part.get("prediction", {"draft_n": 0, "draft_n_accepted": 0}) for part in parts]
    details = events[-2]["usage"]["completion_tokens_details"]
    accepted = sum(each["draft_n_accepted"] for each in counted)
    assert details["accepted_prediction_tokens"] == accepted
    assert details["rejected_prediction_tokens"] == sum(e["draft_n"] for e in counted) - accepted
    assert counted[1]["draft_n_accepted"] > 25


async def test_it_is_read_once_for_all_prompts_and_choices(
    served: Served, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many they are, and no more of it than the context holds."""
    made: list[PredictedText] = []

    class Counted(PredictedText):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            made.append(self)

    monkeypatch.setattr("gateway.engine.predictions.PredictedText", Counted)
    text = "the other and the one " * 1000
    body = await post(
        served,
        path="completions",
        prompt=["a", "b", "c"],
        n=3,
        max_tokens=8,
        ignore_eos=True,
        prediction={"type": "content", "content": text},
    )
    assert len(body["choices"]) == 9
    (only,) = made
    assert len(only.ids) == engine.context_length


async def test_responses_tell_it_in_timings_and_provenance(served: Served, engine: Engine) -> None:
    fields = plainly(engine)
    fields["max_output_tokens"] = fields.pop("max_tokens")
    async with socket_to(served) as socket:
        plain = (await ask(socket, input="Hi", **fields, speculation={"off": True}))[-1]
        text = plain["response"]["output"][0]["content"][0]["text"]
        events = await ask(
            socket,
            input="Hi",
            **fields,
            prediction={"type": "content", "content": text},
            include=["speculation"],
            speculation={"policy": "fixed", "length": 8},
        )
    response = events[-1]["response"]
    Response.model_validate(response, strict=True)
    assert response["output"][0]["content"][0]["text"] == text
    assert response["timings"]["drafter"] == "prediction+ngram"
    part = response["timings"]["by_drafter"]["prediction"]
    assert part["draft_n"] == part["draft_n_accepted"] == 34
    told = [event["speculation"] for event in events if "speculation" in event]
    assert [source for each in told for source in each["sources"]].count("prediction") == 34


async def test_many_at_once_with_a_form_and_tools(served: Served, engine: Engine) -> None:
    """Each with the same prediction, right for one of them, beside tools that may be called."""
    engine.template = ChatTemplate("{# tools #}{% for m in messages %}{{ m.content }}{% endfor %}")
    messages = [[{"role": "user", "content": f"Hi {number}"}] for number in range(4)]
    drafted = 0
    for fields in (
        {"response_format": SCHEMA, "max_tokens": 100},
        {"response_format": SCHEMA, "max_tokens": 100, "tools": TOOLS},
        {"tools": TOOLS, "tool_choice": "required", "max_tokens": 100},
    ):
        plain = [
            await post(served, messages=each, **fields, speculation={"off": True})
            for each in messages
        ]
        said = str(plain[0]["choices"][0]["message"]["content"] or '{"name": "look_up"}')
        predicted = {"type": "content", "content": said}
        calls = [post(served, messages=each, **fields, prediction=predicted) for each in messages]
        for before, after in zip(plain, await asyncio.gather(*calls), strict=True):
            assert after["choices"][0]["finish_reason"] == before["choices"][0]["finish_reason"]
            assert without_ids(after) == without_ids(before)
            drafted += after["usage"]["completion_tokens_details"]["accepted_prediction_tokens"]
    assert drafted > 0


def without_ids(body: dict[str, Any]) -> dict[str, Any]:
    message = dict(body["choices"][0]["message"])
    calls = message.pop("tool_calls", [])
    return {**message, "called": [call["function"] for call in calls]}


async def test_metrics_name_it(served: Served, engine: Engine) -> None:
    engine.observer = served.gateway.metrics.of(engine.package.manifest.name)
    fields = plainly(engine)
    text = (await post(served, **fields))["choices"][0]["message"]["content"]
    await post(
        served,
        **fields,
        prediction={"type": "content", "content": text},
        speculation={"drafter": "prediction"},
    )
    async with aiohttp.ClientSession() as session:
        written = await (await session.get(f"{served.url}/metrics")).text()
    rounds = [line for line in written.splitlines() if 'drafter="prediction"' in line]
    assert rounds
    assert any(float(line.rsplit(" ", 1)[1]) >= 1 for line in rounds)
