"""Schemas of messages and items, of functions, and of the form that an answer is to have."""

from __future__ import annotations

import re

from gateway.http.formats import NAME, SYNTAXES
from gateway.http.openapi.shapes import (
    BOOLEAN,
    OBJECT,
    STRING,
    Schema,
    array,
    either,
    exactly,
    one_of,
    optional,
    text,
)
from gateway.http.responses.compaction import KIND, PREFIX
from gateway.http.responses.items import ROLES, TEXT_PARTS
from gateway.http.tools import CHOICES, MOST_TOOLS

NAMED = text(pattern=f"^{NAME.pattern}$")
FUNCTION = one_of("function")


def _with(required: dict[str, Schema], rest: dict[str, Schema]) -> Schema:
    """An object that has all of `required`, and of `rest` what it wants."""
    return exactly({**required, **optional(rest)}, without=rest)


def _content(kinds: tuple[str, ...]) -> Schema:
    return either(STRING, array(exactly({"type": one_of(*kinds), "text": STRING})))


def _tools(function: Schema) -> Schema:
    return array(function, maxItems=MOST_TOOLS)


def _choice(named: dict[str, Schema]) -> Schema:
    return either(one_of(*CHOICES), exactly({"type": FUNCTION, **named}))


def _form(schema: Schema) -> Schema:
    return either(
        exactly({"type": one_of("text", "json_object")}),
        schema,
        exactly({"type": one_of("regex"), "regex": STRING}),
        _with({"type": one_of("grammar"), "grammar": STRING}, {"syntax": one_of(*SYNTAXES)}),
    )


_DESCRIBED: dict[str, Schema] = {"description": STRING, "parameters": OBJECT, "strict": BOOLEAN}
_FUNCTION = _with({"name": NAMED}, _DESCRIBED)
_SCHEMA: dict[str, Schema] = {"name": NAMED, "schema": OBJECT}
_SCHEMA_SAID: dict[str, Schema] = {"strict": BOOLEAN, "description": STRING}
_JSON_SCHEMA = one_of("json_schema")

CHAT_FORMS: dict[str, Schema] = {
    "tools": _tools(exactly({"type": FUNCTION, "function": _FUNCTION})),
    "tool_choice": _choice({"function": exactly({"name": STRING})}),
    "parallel_tool_calls": BOOLEAN,
    "response_format": _form(
        exactly({"type": _JSON_SCHEMA, "json_schema": _with(_SCHEMA, _SCHEMA_SAID)})
    ),
    "reasoning_effort": STRING,
}
RESPONSE_FORMS: dict[str, Schema] = {
    "tools": _tools(_with({"type": FUNCTION, "name": NAMED}, _DESCRIBED)),
    "tool_choice": _choice({"name": STRING}),
    "parallel_tool_calls": BOOLEAN,
    "text": {
        "type": "object",
        "properties": optional(
            {"format": _form(_with({"type": _JSON_SCHEMA, **_SCHEMA}, _SCHEMA_SAID))}
        ),
    },
    "reasoning": {"type": "object", "properties": optional({"effort": STRING})},
}
CHAT_MESSAGE = either(
    exactly({"role": one_of(*ROLES), "content": _content(("text",))}),
    exactly({"role": one_of("tool"), "tool_call_id": STRING, "content": _content(("text",))}),
    _with(
        {
            "role": one_of("assistant"),
            "tool_calls": array(
                _with(
                    {"id": STRING, "function": exactly({"name": STRING, "arguments": STRING})},
                    {"type": FUNCTION},
                ),
                minItems=1,
            ),
        },
        {"content": _content(("text",)), "reasoning_content": STRING},
    ),
)
INPUT_ITEM = either(
    exactly({"role": one_of(*ROLES), "content": _content(TEXT_PARTS)}),
    exactly(
        {
            "type": one_of("function_call"),
            "call_id": STRING,
            "name": STRING,
            "arguments": STRING,
        }
    ),
    exactly(
        {
            "type": one_of("function_call_output"),
            "call_id": STRING,
            "output": _content(TEXT_PARTS),
        }
    ),
    exactly({"type": one_of(KIND), "encrypted_content": text(pattern=f"^{re.escape(PREFIX)}")}),
    _with(
        {"type": one_of("reasoning")},
        {"content": array(exactly({"type": one_of("reasoning_text"), "text": STRING}))},
    ),
)
