"""Telling a model of functions where its chat template does not: in words, in Hermes' form."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from gateway.calls.dialects import CALL, CALLED
from gateway.calls.tools import Call, Tool

_BEGIN = """# Tools

You can call functions to answer the user. These are the functions:
<tools>
"""
_END = f"""
</tools>

A call is a JSON object with the function's name and arguments, between {CALL} and {CALLED}:
{CALL}
{{"name": <function-name>, "arguments": <arguments-object>}}
{CALLED}"""
_EXAMPLE = "example"
_MOST_DESCRIBED = 200
_VALUES: Mapping[str, Any] = MappingProxyType(
    {"string": _EXAMPLE, "integer": 1, "number": 1.5, "boolean": True, "array": [], "object": {}}
)


def introduction(tools: Iterable[Tool]) -> str:
    """What the system message says."""
    described = (json.dumps(tool.described(), ensure_ascii=False) for tool in tools)
    return _BEGIN + "\n".join(described) + _END


def example(tool: Tool) -> tuple[str, str]:
    """What a user might ask, and the call that answers it.

    A model that has not learnt to call functions does so where it has seen that once, and small
    ones still tell what is no matter of any function.
    """
    asked = (tool.description or tool.name).strip().partition("\n")[0][:_MOST_DESCRIBED]
    properties = tool.parameters.get("properties")
    known = properties if isinstance(properties, Mapping) else {}
    arguments = {name: _value(schema) for name, schema in known.items()}
    call = Call("", tool.name, json.dumps(arguments, ensure_ascii=False))
    return f"{asked}: {_EXAMPLE}", written("", [call])


def _value(schema: object) -> Any:
    if not isinstance(schema, Mapping):
        return _EXAMPLE
    listed = schema.get("enum")
    if isinstance(listed, Sequence) and not isinstance(listed, str) and listed:
        return listed[0]
    if "const" in schema:
        return schema["const"]
    kind = schema.get("type")
    kind = kind[0] if isinstance(kind, list) and kind else kind
    return _VALUES.get(kind, _EXAMPLE) if isinstance(kind, str) else _EXAMPLE


def written(content: str, calls: Sequence[Call]) -> str:
    """What an assistant said, with its calls as it wrote them."""
    parts = [content] if content else []
    parts += (f"<tool_call>\n{_object(call)}\n</tool_call>" for call in calls)
    return "\n".join(parts)


def response(content: str) -> str:
    """A call's result, as a user would say it."""
    return f"<tool_response>\n{content}\n</tool_response>"


def _object(call: Call) -> str:
    name = json.dumps(call.name, ensure_ascii=False)
    return f'{{"name": {name}, "arguments": {call.arguments}}}'
