"""Where keywords stand in a schema, and which schemas have no value that ends."""

from __future__ import annotations

import time
from typing import Any

import pytest

from models.constraints.schemas import never_ends, place_of

SELF = {"$ref": "#"}


def of(name: str, definition: Any, **others: Any) -> dict[str, Any]:
    return {"$defs": {name: definition, **others}, "$ref": f"#/$defs/{name}"}


def holding(schema: Any, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"next": schema}, "required": ["next"], **more}


N = {"$ref": "#/$defs/n"}
ENDLESS: list[Any] = [
    of("n", holding(N)),
    of("n", holding({"anyOf": [N, holding(N)]})),
    of("n", holding({"$ref": "#/$defs/m"}), m={"type": "array", "items": N, "minItems": 1}),
    of("n", {"type": "array", "prefixItems": [{"type": "null"}, N], "minItems": 2}),
    of("n", {"allOf": [{"type": "object"}, holding(N)]}),
    holding(SELF),
    holding({"oneOf": [SELF, holding(SELF)]}),
    {"type": "object", "required": ["a"], "additionalProperties": SELF},
    {
        "$defs": {"a/b": {"$ref": "#/$defs/c~0d"}, "c~d": holding({"$ref": "#/$defs/a~1b"})},
        "$ref": "#/%24defs/a~1b",
    },
]
ENDING: list[Any] = [
    {},
    True,
    {"type": "string"},
    of("n", {"type": "object", "properties": {"next": N}}),
    of("n", holding({"anyOf": [N, {"type": "null"}]})),
    of("n", holding({**N, "type": ["object", "null"]}, type=["object", "null"])),
    of("n", {"type": "array", "items": N}),
    of("n", {"type": "array", "prefixItems": [{"type": "null"}], "items": N, "minItems": 1}),
    of("n", holding(N, enum=[1])),
    {"type": "object", "required": ["a"], "patternProperties": {"a": {}}, "properties": {}},
    {"$ref": "#/nowhere"},
    {"$ref": "http://example.org/x"},
    {"type": 7, "required": 3, "properties": [], "anyOf": 5, "allOf": {}, "enum": 1},
    {"type": "array", "minItems": 10**9},
    {"type": "object", "properties": {"$ref": {"type": "null"}}, "required": ["$ref"]},
]


@pytest.mark.parametrize("schema", ENDLESS, ids=lambda value: str(value)[:70])
def test_every_value_would_hold_another(schema: Any) -> None:
    assert never_ends(schema)


@pytest.mark.parametrize("schema", ENDING, ids=lambda value: str(value)[:70])
def test_some_value_ends_or_it_is_not_known(schema: Any) -> None:
    assert not never_ends(schema)


def test_large_schemas_take_time_by_their_size() -> None:
    count = 10_000
    chain = {f"d{n}": holding({"$ref": f"#/$defs/d{n + 1}"}) for n in range(count)}
    began = time.process_time()
    assert not never_ends({"$defs": {**chain, f"d{count}": {}}, "$ref": "#/$defs/d0"})
    assert never_ends(
        {"$defs": {**chain, f"d{count}": {"$ref": "#/$defs/d0"}}, "$ref": "#/$defs/d0"}
    )
    names = [f"p{n}" for n in range(count)]
    each = {"type": "object", "required": names, "properties": dict.fromkeys(names, SELF)}
    assert never_ends(each)
    assert time.process_time() - began < 10


def test_the_place_of_a_keyword() -> None:
    schema = {
        "properties": {"not": {"type": "null"}, "a": {"items": [{"x": 1}, {"not": {}}]}},
        "enum": [{"if": 1}],
    }
    assert place_of(schema, "not") == "properties.a.items[1]"
    assert place_of(schema, "properties") == ""
    assert place_of(schema, "if") is None
    assert place_of([], "if") is None
