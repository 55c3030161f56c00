"""The form that an answer is to have: `response_format`, and `text.format` of the Responses API."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from gateway.http import foreign
from gateway.http.fields import invalid, one_of, optional, required, typed
from gateway.http.responses.limits import TEXT_LIMITS, check_limits
from models.constraints.source import ConstraintSource

TYPES = ("text", "json_object", "json_schema", "regex", "grammar")
SYNTAXES = ("lark",)
NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class Form:
    """`constraint` None is plain text. `echo` is the object as a response repeats it."""

    constraint: ConstraintSource | None = None
    echo: Mapping[str, Any] = field(default_factory=lambda: {"type": "text"})


def parse_response_format(document: Mapping[str, Any]) -> ConstraintSource | None:
    """`response_format`, whose schema is an object of its own.

    Raises `UserError` that names the field; whether the schema can be enforced the engine says.
    """
    value = document.get("response_format")
    if value is None:
        return None
    return _form(value, "response_format", nested=True).constraint


def parse_text(document: Mapping[str, Any]) -> Form:
    """`text`, whose `format` has the schema beside its type. Raises `UserError` as above."""
    text = document.get("text")
    if text is None:
        return Form()
    check_limits(typed(text, dict, "text"), TEXT_LIMITS, "text.")
    value = text.get("format")
    return Form() if value is None else _form(value, "text.format", nested=False)


def _form(value: Any, param: str, *, nested: bool) -> Form:
    typed(value, dict, param)
    kind = one_of(required(value, "type", str, f"{param}."), TYPES, f"{param}.type")
    if kind == "json_object":
        return Form(ConstraintSource("json_object", param=param), {"type": kind})
    if kind == "json_schema":
        _require_form(value, param, nested)
        if nested:
            value, param = required(value, kind, dict, f"{param}."), f"{param}.{kind}"
        return _schema(value, f"{param}.")
    if kind == "regex":
        text = required(value, kind, str, f"{param}.")
        source = ConstraintSource("regex", text, f"{param}.{kind}")
        return Form(source, {"type": kind, kind: text})
    if kind == "grammar":
        text = required(value, kind, str, f"{param}.")
        syntax = optional(value, "syntax", str, f"{param}.") or SYNTAXES[0]
        one_of(syntax, SYNTAXES, f"{param}.syntax")
        source = ConstraintSource("grammar", text, f"{param}.{kind}")
        return Form(source, {"type": kind, kind: text, "syntax": syntax})
    return Form()


def _require_form(value: Mapping[str, Any], param: str, nested: bool) -> None:
    """Raise `UserError` where the schema stands where the other API has it."""
    inner, flat = isinstance(value.get("json_schema"), dict), value.get("schema") is not None
    if nested and flat and not inner:
        raise foreign.foreign_form(f"{param}.schema", foreign.RESPONSES, foreign.CHAT_SCHEMA)
    if not nested and inner and not flat:
        raise foreign.foreign_form(f"{param}.json_schema", foreign.CHAT, foreign.FLAT_SCHEMA)


def _schema(value: Mapping[str, Any], prefix: str) -> Form:
    """`strict` false asks for less than is given: a schema is always enforced."""
    name = required(value, "name", str, prefix)
    if not NAME.fullmatch(name):
        raise invalid(f"{prefix}name", "must be 1 to 64 of A-Z, a-z, 0-9, '_', '-'")
    schema = required(value, "schema", dict, prefix)
    description = optional(value, "description", str, prefix)
    echo = {
        "type": "json_schema",
        "name": name,
        "schema": schema,
        "strict": optional(value, "strict", bool, prefix),
        **({} if description is None else {"description": description}),
    }
    # In the order of its keys: properties are said in it.
    text = orjson.dumps(schema).decode()
    return Form(ConstraintSource("json_schema", text, f"{prefix}schema"), echo)
