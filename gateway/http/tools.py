"""`tools` and `tool_choice`: which functions may be called, must be, or must not."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gateway.calls.tools import Tool
from gateway.http import foreign
from gateway.http.fields import (
    invalid,
    missing,
    one_of,
    optional,
    required,
    typed,
    unsupported,
    wrong_type,
)

MOST_TOOLS = 128
CHOICES = ("none", "auto", "required")
NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
NO_PARAMETERS: Mapping[str, Any] = {
    "type": "object",
    "properties": {},
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True)
class ToolUse:
    """`tools` are those that may be called; with `must` at least one call is made, and without
    `several` one at most. `echo` is `tools` and `tool_choice` as a response repeats them."""

    tools: tuple[Tool, ...]
    must: bool
    several: bool
    echo: Mapping[str, Any]


def parse_chat_tools(document: Mapping[str, Any]) -> ToolUse:
    """As chat completions name them: a function is an object of its own.

    Raises `UserError` that names the field.
    """
    return _use(document, nested=True)


def parse_tools(document: Mapping[str, Any]) -> ToolUse:
    """As the Responses API names them. Raises `UserError` that names the field."""
    return _use(document, nested=False)


def _use(document: Mapping[str, Any], *, nested: bool) -> ToolUse:
    given = optional(document, "tools", list) or []
    if len(given) > MOST_TOOLS:
        raise unsupported("tools", len(given), f"at most {MOST_TOOLS} functions")
    read = [_tool(value, f"tools[{index}]", nested) for index, value in enumerate(given)]
    tools = tuple(tool for tool, _ in read)
    for index, tool in enumerate(tools):
        if any(other.name == tool.name for other in tools[:index]):
            raise invalid(f"tools[{index}]", f"is called {tool.name!r} like one before it")
    choice, named = _choice(document.get("tool_choice"), nested)
    if choice == "required" and not tools:
        raise missing("tools")
    parallel = optional(document, "parallel_tool_calls", bool)
    usable = tools if choice != "none" else ()
    if named is not None:
        usable = tuple(tool for tool in tools if tool.name == named)
        if not usable:
            raise invalid("tool_choice", f"names {named!r}, which is not among the tools")
    return ToolUse(
        tools=usable,
        must=choice == "required",
        several=named is None and parallel is not False,
        echo={
            "tools": [echo for _, echo in read],
            "tool_choice": choice if named is None else {"type": "function", "name": named},
            "parallel_tool_calls": True if parallel is None else parallel,
        },
    )


def _tool(value: Any, param: str, nested: bool) -> tuple[Tool, dict[str, Any]]:
    """The tool, and the object that a response repeats it by."""
    typed(value, dict, param)
    kind = required(value, "type", str, f"{param}.")
    if kind != "function":
        raise unsupported(f"{param}.type", kind, '"function"')
    _require_form(value, param, nested, (foreign.CHAT_TOOL, foreign.FLAT_TOOL))
    if nested:
        value, param = required(value, kind, dict, f"{param}."), f"{param}.{kind}"
    name = required(value, "name", str, f"{param}.")
    if not NAME.fullmatch(name):
        raise invalid(f"{param}.name", "must be 1 to 64 of A-Z, a-z, 0-9, '_', '-'")
    description = optional(value, "description", str, f"{param}.")
    parameters = optional(value, "parameters", dict, f"{param}.")
    strict = optional(value, "strict", bool, f"{param}.")
    echo = {
        "type": kind,
        "name": name,
        "description": description,
        "parameters": parameters,
        "strict": strict,
    }
    where = f"{param}.parameters"
    if parameters is None:
        return Tool(name, description, NO_PARAMETERS, where), echo
    if parameters.get("type", "object") != "object":
        raise invalid(
            where, 'must be the schema of an object: its type is "object", or is not given'
        )
    return Tool(name, description, parameters, where), echo


def _choice(value: Any, nested: bool) -> tuple[str, str | None]:
    """One of `CHOICES`, and the function that is named, where one is."""
    if value is None:
        return "auto", None
    if isinstance(value, str):
        return one_of(value, CHOICES, "tool_choice"), None
    if not isinstance(value, dict):
        raise wrong_type("tool_choice", "a string or an object", value)
    kind = required(value, "type", str, "tool_choice.")
    if kind != "function":
        raise unsupported("tool_choice.type", kind, '"function"')
    _require_form(value, "tool_choice", nested, (foreign.CHAT_CHOICE, foreign.FLAT_CHOICE))
    if nested:
        function = required(value, kind, dict, "tool_choice.")
        return "required", required(function, "name", str, "tool_choice.function.")
    return "required", required(value, "name", str, "tool_choice.")


def _require_form(
    value: Mapping[str, Any], param: str, nested: bool, forms: tuple[str, str]
) -> None:
    """Raise `UserError` where a function is named as the other API does; `forms` are chat's and
    that of Responses."""
    chat, flat = forms
    inner, named = isinstance(value.get("function"), dict), value.get("name") is not None
    if nested and named and not inner:
        raise foreign.foreign_form(f"{param}.name", foreign.RESPONSES, chat)
    if not nested and inner and not named:
        raise foreign.foreign_form(f"{param}.function", foreign.CHAT, flat)
