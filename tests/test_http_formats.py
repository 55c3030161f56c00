"""`response_format` and `text.format`: read, echoed, refused by field."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.http.completions.schema import parse_chat, parse_text
from gateway.http.formats import Form, parse_response_format
from gateway.http.formats import parse_text as parse_text_field
from gateway.http.responses.schema import parse_create
from gateway.settings import Settings
from models.constraints.source import ConstraintSource
from models.errors import UserError
from tests.chat_requests import MESSAGES

SCHEMA = {"type": "object", "properties": {"b": {"type": "null"}, "a": {"type": "null"}}}
NAMED = {"name": "thing", "schema": SCHEMA}
GRAMMAR = 'start: "a"'

CHAT: list[tuple[dict[str, Any], ConstraintSource | None]] = [
    ({"type": "text"}, None),
    ({"type": "json_object"}, ConstraintSource("json_object")),
    (
        {"type": "json_schema", "json_schema": {**NAMED, "strict": True, "description": "x"}},
        ConstraintSource("json_schema", json.dumps(SCHEMA, separators=(",", ":"))),
    ),
    ({"type": "regex", "regex": "a+"}, ConstraintSource("regex", "a+")),
    ({"type": "grammar", "grammar": GRAMMAR}, ConstraintSource("grammar", GRAMMAR)),
    (
        {"type": "grammar", "grammar": GRAMMAR, "syntax": "lark"},
        ConstraintSource("grammar", GRAMMAR),
    ),
]


@pytest.mark.parametrize(("value", "expected"), CHAT, ids=lambda value: str(value)[:50])
def test_forms_of_chat_and_completions(
    value: dict[str, Any], expected: ConstraintSource | None
) -> None:
    assert parse_response_format({"response_format": value}) == expected
    chat = parse_chat({"messages": MESSAGES, "response_format": value}, Settings())
    text = parse_text({"prompt": "a", "response_format": value}, Settings())
    for common in (chat.common, text.common):
        assert common.decoding.constraint == expected
        assert common.decoding.request((1,), 5).constraint == expected


def test_forms_of_responses_and_their_echo() -> None:
    for value in (
        {"type": "text"},
        {"type": "json_object"},
        {"type": "json_schema", **NAMED, "strict": True},
        {"type": "json_schema", **NAMED, "strict": None, "description": "a thing"},
        {"type": "regex", "regex": "a+"},
        {"type": "grammar", "grammar": GRAMMAR, "syntax": "lark"},
    ):
        form = parse_text_field({"text": {"format": value, "verbosity": "medium"}})
        assert form.echo == value
        request = parse_create({"input": "Hi", "text": {"format": value}}, Settings())
        assert request.echo["text"] == {"format": value}
        assert request.decoding.constraint == form.constraint
    for absent in ({}, {"text": None}, {"text": {}}, {"text": {"format": None}}):
        assert parse_text_field(absent) == Form()
    assert Form().echo == {"type": "text"}


def test_the_field_that_errors_name() -> None:
    chat = {"type": "json_schema", "json_schema": NAMED}
    for constraint, param in (
        (
            parse_response_format({"response_format": chat}),
            "response_format.json_schema.schema",
        ),
        (
            parse_response_format({"response_format": {"type": "regex", "regex": "a"}}),
            "response_format.regex",
        ),
        (
            parse_text_field({"text": {"format": {"type": "json_schema", **NAMED}}}).constraint,
            "text.format.schema",
        ),
        (parse_text_field({"text": {"format": {"type": "json_object"}}}).constraint, "text.format"),
    ):
        assert constraint is not None
        assert constraint.param == param


BAD: list[tuple[Any, str, str]] = [
    ("json", "invalid_type", ""),
    ({}, "missing_required_parameter", ".type"),
    ({"type": 7}, "invalid_type", ".type"),
    ({"type": "xml"}, "unsupported_value", ".type"),
    ({"type": "regex"}, "missing_required_parameter", ".regex"),
    ({"type": "regex", "regex": 7}, "invalid_type", ".regex"),
    ({"type": "grammar"}, "missing_required_parameter", ".grammar"),
    ({"type": "grammar", "grammar": "x", "syntax": "gbnf"}, "unsupported_value", ".syntax"),
]
BAD_SCHEMAS: list[tuple[dict[str, Any], str, str]] = [
    ({}, "missing_required_parameter", "name"),
    ({"name": "a b", "schema": {}}, "invalid_value", "name"),
    ({"name": "a" * 65, "schema": {}}, "invalid_value", "name"),
    ({"name": "a"}, "missing_required_parameter", "schema"),
    ({"name": "a", "schema": "{}"}, "invalid_type", "schema"),
    ({**NAMED, "strict": "yes"}, "invalid_type", "strict"),
    ({**NAMED, "description": 1}, "invalid_type", "description"),
]


@pytest.mark.parametrize(("value", "code", "field"), BAD, ids=lambda value: str(value)[:50])
def test_a_bad_form_names_its_field(value: Any, code: str, field: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_response_format({"response_format": value})
    assert (caught.value.code, caught.value.param) == (code, "response_format" + field)
    with pytest.raises(UserError) as caught:
        parse_create({"input": "Hi", "text": {"format": value}}, Settings())
    assert (caught.value.code, caught.value.param) == (code, "text.format" + field)


@pytest.mark.parametrize(("value", "code", "field"), BAD_SCHEMAS, ids=lambda value: str(value)[:50])
def test_a_bad_schema_names_its_field(value: dict[str, Any], code: str, field: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_response_format({"response_format": {"type": "json_schema", "json_schema": value}})
    assert (caught.value.code, caught.value.param) == (
        code,
        f"response_format.json_schema.{field}",
    )
    with pytest.raises(UserError) as caught:
        parse_text_field({"text": {"format": {"type": "json_schema", **value}}})
    assert (caught.value.code, caught.value.param) == (code, f"text.format.{field}")


def test_a_schema_without_its_object_is_missing() -> None:
    with pytest.raises(UserError) as caught:
        parse_response_format({"response_format": {"type": "json_schema"}})
    assert caught.value.param == "response_format.json_schema"
