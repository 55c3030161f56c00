"""Fields in another API's form: OpenAI's endpoints write functions and formats differently, and
have other names for what is to be answered and how much.

Where they are no fields of the endpoint they would be ignored, and an answer would not be what was
asked for. Each is refused by a message that names the field and says what is right here. A field
that only has another name is let pass beside the right one, which says what is meant.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from models.errors import UserError

CHAT = "in the form of chat completions"
RESPONSES = "in the form of the Responses API"
OLD = "the form that tools replaced"

CHAT_TOOL = '{"type": "function", "function": {"name": ..., "parameters": ...}}'
FLAT_TOOL = '{"type": "function", "name": ..., "parameters": ...}'
CHAT_CHOICE = '{"type": "function", "function": {"name": ...}}'
FLAT_CHOICE = '{"type": "function", "name": ...}'
CHAT_CALLS = '"tool_calls": [{"id": ..., "type": "function", "function": {...}}]'
CHAT_RESULT = '{"role": "tool", "tool_call_id": ..., "content": ...}'
CALL_ITEM = '{"type": "function_call", "call_id": ..., "name": ..., "arguments": ...}'
RESULT_ITEM = '{"type": "function_call_output", "call_id": ..., "output": ...}'
CHAT_SCHEMA = '{"type": "json_schema", "json_schema": {"name": ..., "schema": ...}}'
FLAT_SCHEMA = '{"type": "json_schema", "name": ..., "schema": ...}'


@dataclass(frozen=True, slots=True)
class Foreign:
    """`given` says whether a value asks for anything; `problem` what is wrong with it, and `right`
    what is asked for here instead. Where one of `beside` is given it does no harm."""

    given: Callable[[Any], bool]
    problem: str
    right: str
    beside: tuple[str, ...] = ()


def _is_set(value: Any) -> bool:
    return value is not None


def _lists(value: Any) -> bool:
    return value is not None and value != []


def _names(value: Any) -> bool:
    return value not in (None, "none", "auto")


_NO_CALLS = "for chat completions and the Responses API; a completion calls no functions"
_ABSENT = "absent, or a request to /v1/chat/completions"
_CHAT_PATH, _RESPONSES_PATH = "/v1/chat/completions", "/v1/responses"


def _named(path: str, *right: str) -> Foreign:
    """A field of the endpoint `path` that has another name here, or one of several."""
    return Foreign(_is_set, f"a field of {path}", " or ".join(right), right)


IN_RESPONSES: Mapping[str, Foreign] = MappingProxyType(
    {
        "max_tokens": _named(_CHAT_PATH, "max_output_tokens"),
        "max_completion_tokens": _named(_CHAT_PATH, "max_output_tokens"),
        "messages": _named(_CHAT_PATH, "input"),
        "response_format": Foreign(_is_set, CHAT, f'text: {{"format": {FLAT_SCHEMA}}}'),
        "functions": Foreign(_lists, OLD, f"tools: [{FLAT_TOOL}]"),
        "function_call": Foreign(_names, OLD, f"tool_choice: {FLAT_CHOICE}"),
    }
)
IN_CHAT: Mapping[str, Foreign] = MappingProxyType(
    {
        "max_output_tokens": _named(_RESPONSES_PATH, "max_tokens", "max_completion_tokens"),
        "input": _named(_RESPONSES_PATH, "messages"),
        "prompt": _named("/v1/completions", "messages"),
        "text.format": Foreign(_is_set, RESPONSES, f"response_format: {CHAT_SCHEMA}"),
        "functions": Foreign(_lists, OLD, f"tools: [{CHAT_TOOL}]"),
        "function_call": Foreign(_names, OLD, f"tool_choice: {CHAT_CHOICE}"),
    }
)
IN_TEXT: Mapping[str, Foreign] = MappingProxyType(
    {
        "max_output_tokens": _named(_RESPONSES_PATH, "max_tokens"),
        "max_completion_tokens": _named(_CHAT_PATH, "max_tokens"),
        "input": _named(_RESPONSES_PATH, "prompt"),
        "messages": _named(_CHAT_PATH, "prompt"),
        "text.format": Foreign(_is_set, RESPONSES, f"response_format: {CHAT_SCHEMA}"),
        "tools": Foreign(_lists, _NO_CALLS, _ABSENT),
        "tool_choice": Foreign(_names, _NO_CALLS, _ABSENT),
        "functions": Foreign(_lists, _NO_CALLS, _ABSENT),
        "function_call": Foreign(_names, _NO_CALLS, _ABSENT),
    }
)


def refuse_foreign(document: Mapping[str, Any], fields: Mapping[str, Foreign]) -> None:
    """Raise `UserError` (`unsupported_value`) that names the first of `fields` that is given."""
    for path, foreign in fields.items():
        right_given = any(document.get(name) is not None for name in foreign.beside)
        if foreign.given(_at(document, path)) and not right_given:
            raise foreign_form(path, foreign.problem, foreign.right)


def foreign_form(param: str, problem: str, right: str) -> UserError:
    return UserError(
        f"{param} is {problem}; right here is {right}.", code="unsupported_value", param=param
    )


def _at(document: Mapping[str, Any], path: str) -> Any:
    name, _, inner = path.partition(".")
    value = document.get(name)
    if not inner:
        return value
    return value.get(inner) if isinstance(value, dict) else None
