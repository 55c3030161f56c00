"""JSON Schemas (2020-12) in few words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Schema = dict[str, Any]

STRING: Schema = {"type": "string"}
BOOLEAN: Schema = {"type": "boolean"}
INTEGER: Schema = {"type": "integer"}
NUMBER: Schema = {"type": "number"}
COUNT: Schema = {"type": "integer", "minimum": 0}
OBJECT: Schema = {"type": "object"}


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def array(items: Schema, **more: Any) -> Schema:
    return {"type": "array", "items": items, **more}


def integer(least: int | None = None, most: int | None = None) -> Schema:
    return _bounded("integer", least, most)


def number(least: float | None = None, most: float | None = None) -> Schema:
    return _bounded("number", least, most)


def text(**more: Any) -> Schema:
    return {"type": "string", **more}


def one_of(*values: Any) -> Schema:
    """Exactly one of these values."""
    return {"enum": list(values)}


def either(*schemas: Schema) -> Schema:
    return {"anyOf": list(schemas)}


def nullable(schema: Schema) -> Schema:
    return either(schema, {"type": "null"})


def optional(properties: dict[str, Schema]) -> dict[str, Schema]:
    """In requests null is the same as absent."""
    return {name: nullable(schema) for name, schema in properties.items()}


def objects_of(values: Schema) -> Schema:
    """An object whose values are all alike."""
    return {"type": "object", "additionalProperties": values}


def exactly(properties: dict[str, Schema], *, without: Iterable[str] = ()) -> Schema:
    """An object that has all of these; those in `without` it may lack."""
    lacking = frozenset(without)
    required = [name for name in properties if name not in lacking]
    return {"type": "object", "properties": properties, "required": required}


def _bounded(kind: str, least: float | None, most: float | None) -> Schema:
    bounds = {"minimum": least, "maximum": most}
    return {"type": kind} | {name: value for name, value in bounds.items() if value is not None}
