"""The document: every route is in it, and what it says of fields is what is taken."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import jsonschema
import pytest

from gateway.http.app import make_app
from gateway.http.completions.schema import parse_chat, parse_text
from gateway.http.gateway import Gateway
from gateway.http.openapi.document import document
from gateway.http.openapi.requests import SAMPLING, SHARED
from gateway.http.prediction import MOST_CHARACTERS
from gateway.http.responses.schema import parse_create
from gateway.settings import Settings
from models.errors import UserError
from tests.fake_engine import FakeEngine
from tests.http_serving import answer_of, serving, socket_to
from tests.test_http_guard import get

DOCUMENT = document("0")
SCHEMAS = DOCUMENT["components"]["schemas"]
TEXT: dict[str, Any] = {"input": "x"}
CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "x"}]}
PARSERS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "CreateResponse": (parse_create, TEXT),
    "CreateChatCompletion": (parse_chat, CHAT),
    "CreateCompletion": (parse_text, {"prompt": "x"}),
}


def validator(name: str) -> jsonschema.Draft202012Validator:
    schema = {"$ref": f"#/components/schemas/{name}", **DOCUMENT}
    return jsonschema.Draft202012Validator(schema)


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == "$ref":
                yield inner
            else:
                yield from references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references(inner)


def test_every_route_is_in_it_and_no_other() -> None:
    router = make_app(Gateway(Settings(), FakeEngine())).router
    served = {
        (route.resource.canonical, route.method.lower())
        for route in router.routes()
        if route.resource is not None
        and route.method not in ("HEAD", "OPTIONS")
        # What the page is made of is no part of the API.
        and not route.resource.canonical.startswith("/page/")
    }
    described = {
        (path, method) for path, operations in DOCUMENT["paths"].items() for method in operations
    }
    assert served == described


async def test_it_is_served_to_anybody() -> None:
    async with serving(FakeEngine(), api_keys=("key",)) as served:
        status, found = await get(served, "/openapi.json")
    assert status == 200
    assert found["openapi"] == "3.1.0"
    assert found["paths"] == DOCUMENT["paths"]


def test_its_schemas_are_schemas_and_its_references_lead_somewhere() -> None:
    for schema in SCHEMAS.values():
        jsonschema.Draft202012Validator.check_schema(schema)
    for reference in references(DOCUMENT):
        assert reference.removeprefix("#/components/schemas/") in SCHEMAS


def accepted(parse: Callable[..., Any], body: dict[str, Any]) -> bool:
    try:
        parse(body, Settings())
    except UserError:
        return False
    return True


def bounds() -> Iterator[tuple[str, float]]:
    """Numbers at and just beyond the ends of what each field may be."""
    for name, schema in SAMPLING.items():
        if schema.get("type") not in ("number", "integer"):
            continue
        for end, sign in (("minimum", -1), ("maximum", 1)):
            if end in schema:
                step = 1 if schema["type"] == "integer" else 0.001
                yield name, schema[end]
                yield name, schema[end] + sign * step


@pytest.mark.parametrize("name", PARSERS)
@pytest.mark.parametrize(("field", "value"), list(bounds()))
def test_ranges_are_those_that_are_taken(name: str, field: str, value: float) -> None:
    parse, base = PARSERS[name]
    body = {**base, field: value}
    assert accepted(parse, body) == validator(name).is_valid(body)


def _function(name: str) -> dict[str, Any]:
    return {"type": "function", "name": name}


def _nested(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


SCHEMA: dict[str, Any] = {"name": "a", "schema": {"type": "object"}, "strict": None}
CALLED = {"name": "look_up", "arguments": "{}"}
ITEMS: list[dict[str, Any]] = [
    {"role": "user", "content": "x"},
    {"type": "function_call", "call_id": "c", **CALLED},
    {"type": "function_call_output", "call_id": "c", "output": "found"},
]
TOLD = {"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": CALLED}]}
RESULT = {"role": "tool", "tool_call_id": "c", "content": "found"}
OTHERS: list[tuple[str, dict[str, Any]]] = [
    *(
        (name, {field: value})
        for name in PARSERS
        for field, value in (
            ("temperature", None),
            ("temperature", "1"),
            ("stop", ""),
            ("stop", "x" * 1025),
            ("stop", ["a"] * 16),
            ("stop", ["a"] * 17),
            ("stop_token_ids", [-1]),
            ("stop_token_ids", [5]),
            ("logit_bias", {"5": 101}),
            ("logit_bias", {"5": -100}),
            ("logit_bias", {"x": 1}),
            ("logit_bias", {"05": 1}),
            ("ignore_eos", 1),
            ("speculation", {"length": 31}),
            ("speculation", {"length": 32}),
            ("speculation", {"unknown": 1}),
            ("speculation", {"policy": "auto"}),
            ("speculation", {"policy": "best"}),
            ("speculation", {"rule": "classic", "branches": 8}),
            ("speculation", {"branches": 9}),
            ("user", 5),
            ("stream", "yes"),
            ("unknown", {"anything": 1}),
        )
    ),
    ("CreateResponse", {"input": None}),
    ("CreateResponse", {"input": []}),
    ("CreateResponse", {"input": [{"role": "user", "content": "x"}]}),
    ("CreateResponse", {"input": [{"role": "robot", "content": "x"}]}),
    ("CreateResponse", {"max_output_tokens": 0}),
    ("CreateResponse", {"top_logprobs": 21}),
    ("CreateResponse", {"include": ["speculation"]}),
    ("CreateResponse", {"include": ["everything"]}),
    ("CreateResponse", {"metadata": {"a": 1}}),
    ("CreateResponse", {"metadata": {"a": "b"}}),
    ("CreateResponse", {"background": True}),
    ("CreateChatCompletion", {"messages": []}),
    ("CreateChatCompletion", {"n": 9}),
    ("CreateChatCompletion", {"max_tokens": 0}),
    ("CreateChatCompletion", {"stream_options": {"include_usage": True}}),
    *(
        (name, fields)
        for name, field, function, form in (
            ("CreateResponse", "text", _function, lambda form: {"format": form}),
            ("CreateChatCompletion", "response_format", _nested, lambda form: form),
        )
        for fields in (
            {"tools": [function("look_up")]},
            {"tools": [function("look up")]},
            {"tools": [function("a" * 65)]},
            {"tools": [{"type": "web_search"}]},
            {"tools": [], "tool_choice": "auto"},
            {"tools": [function("look_up")], "tool_choice": "always"},
            {"tools": [function("look_up")], "tool_choice": function("look_up")},
            {"parallel_tool_calls": "no"},
            {field: form({"type": "json_object"})},
            {field: form({"type": "regex", "regex": "a+"})},
            {field: form({"type": "regex"})},
            {field: form({"type": "grammar", "grammar": "start: /a/"})},
            {field: form({"type": "grammar", "grammar": "start: /a/", "syntax": "ebnf"})},
            {field: form({"type": "xml"})},
        )
    ),
    *(
        (name, {"prediction": value})
        for name in ("CreateResponse", "CreateChatCompletion", "CreateCompletion")
        for value in (
            {"type": "content", "content": "x"},
            {"type": "content", "content": [{"type": "text", "text": "x"}]},
            {"type": "content", "content": ""},
            {"type": "content", "content": "x" * (MOST_CHARACTERS + 1)},
            {"type": "content", "content": [{"type": "refusal", "refusal": "x"}]},
            {"type": "content"},
            {"content": "x"},
            {"type": "text", "content": "x"},
            "x",
        )
    ),
    ("CreateResponse", {"text": {"format": {**SCHEMA, "type": "json_schema"}}}),
    ("CreateResponse", {"text": {"format": {"type": "json_schema", "schema": {}}}}),
    ("CreateResponse", {"input": [{"type": "function_call", **CALLED, "call_id": "c"}]}),
    ("CreateResponse", {"input": [{"type": "function_call", **CALLED}]}),
    ("CreateResponse", {"input": [*ITEMS, {"type": "reasoning"}]}),
    ("CreateResponse", {"input": [*ITEMS, {"type": "image"}]}),
    ("CreateChatCompletion", {"response_format": {"type": "json_schema", "json_schema": SCHEMA}}),
    ("CreateChatCompletion", {"response_format": {"type": "json_schema", **SCHEMA}}),
    ("CreateChatCompletion", {"messages": [TOLD, RESULT]}),
    ("CreateChatCompletion", {"messages": [TOLD, {"role": "tool", "content": "x"}]}),
    ("CreateChatCompletion", {"messages": [{"role": "assistant"}]}),
    ("CreateCompletion", {"prompt": ""}),
    ("CreateCompletion", {"prompt": [1, 2]}),
    ("CreateCompletion", {"prompt": [[1], "a"]}),
    ("CreateCompletion", {"prompt": [[]]}),
    ("CreateCompletion", {"logprobs": 6}),
    ("CreateCompletion", {"n": 8}),
]


@pytest.mark.parametrize(("name", "fields"), OTHERS, ids=lambda value: str(value)[:50])
def test_forms_are_those_that_are_taken(name: str, fields: dict[str, Any]) -> None:
    parse, base = PARSERS[name]
    body = {**base, **fields}
    assert accepted(parse, body) == validator(name).is_valid(body)


def test_every_shared_field_has_a_form() -> None:
    for name, schema in SHARED.items():
        assert schema, name
        assert not any(isinstance(value, float) and math.isnan(value) for value in schema.values())


async def test_answers_are_of_the_forms_that_it_tells() -> None:
    engine = FakeEngine("yes")
    async with serving(engine) as served:
        for path, body, name in (
            ("/v1/responses", {"input": "x", "metadata": {"a": "b"}}, "Response"),
            ("/v1/chat/completions", {**CHAT, "logprobs": True, "n": 2}, "ChatCompletion"),
            ("/v1/completions", {"prompt": "x", "logprobs": 2}, "Completion"),
            ("/v1/responses", {"input": 7}, "Error"),
        ):
            _, answer = await get(served, path, method="POST", json=body)
            validator(name).validate(answer)
        for path, name in (
            ("/v1/models", "Models"),
            ("/v1/status", "Status"),
            ("/health", "State"),
            ("/ready", "State"),
            ("/v1/responses/none", "Error"),
        ):
            validator(name).validate((await get(served, path))[1])
        async with socket_to(served) as socket:
            await socket.send_json({"type": "response.create", "input": "x"})
            for event in await answer_of(socket):
                if "response" in event:
                    validator("Response").validate(event["response"])
