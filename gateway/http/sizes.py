"""How much a request may ask for: nesting, tokens, and the schemas that it brings along."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from gateway.http.fields import at_least, optional
from gateway.limits import Limits
from models.errors import UserError

SCHEMAS = (
    "text.format.schema",
    "response_format.schema",
    "response_format.json_schema.schema",
    "tools[].parameters",
    "tools[].function.parameters",
    "functions[].parameters",
)
"""Where requests have JSON Schemas, on all endpoints."""


def require_small_schemas(document: Mapping[str, Any], limits: Limits) -> None:
    """Raise `UserError` (`unsupported_value`) that names the first schema that is too large."""
    for path in SCHEMAS:
        for param, schema in _found(document, path.split("."), ""):
            _require_small(schema, param, limits)


def bounded_tokens(
    document: Mapping[str, Any], name: str, limits: Limits, *, least: int = 1
) -> int | None:
    """The tokens that an answer may have by the field `name`: no more than the limit, which is
    that of a request without the field. Raises `UserError` that names the field."""
    asked = at_least(optional(document, name, int), least, name)
    most = limits.output_tokens
    if most is not None and asked is not None and asked > most:
        raise UserError(
            f"{name} is {asked}; answers have at most {most} tokens here.",
            code="unsupported_value",
            param=name,
        )
    return most if asked is None else asked


def _found(value: Any, path: list[str], before: str) -> Iterator[tuple[str, Any]]:
    """What is at `path` (`name[]`: in each element of that array), with what to call it."""
    if not path:
        if isinstance(value, (dict, list)):
            yield before, value
        return
    name, rest = path[0], path[1:]
    if not isinstance(value, dict):
        return
    inner = value.get(name.removesuffix("[]"))
    here = f"{before}.{name.removesuffix('[]')}".lstrip(".")
    if not name.endswith("[]"):
        yield from _found(inner, rest, here)
    elif isinstance(inner, list):
        for index, each in enumerate(inner):
            yield from _found(each, rest, f"{here}[{index}]")


def _require_small(schema: Any, param: str, limits: Limits) -> None:
    size = len(orjson.dumps(schema))
    if size > limits.schema_bytes:
        raise _too_large(param, f"has {size} bytes", f"{limits.schema_bytes} are taken")
    if nesting_of(schema) > limits.schema_nesting:
        raise _too_large(param, "is nested too deeply", f"{limits.schema_nesting} levels are taken")


def nesting_of(value: Any) -> int:
    """Levels of arrays and objects in decoded JSON, which is nested less than Python recurses."""
    inner = value.values() if isinstance(value, dict) else value
    if not isinstance(value, (dict, list)):
        return 0
    return 1 + max(map(nesting_of, inner), default=0)


def _too_large(param: str, problem: str, most: str) -> UserError:
    return UserError(f"{param} {problem}; at most {most}.", code="unsupported_value", param=param)
