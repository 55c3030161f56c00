"""Functions and formats in another API's form: refused by one message that says what is right."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from gateway.http import foreign
from gateway.http.completions.schema import parse_chat, parse_text
from gateway.http.responses.schema import parse_create
from gateway.settings import Settings
from models.errors import UserError
from tests.chat_requests import MESSAGES

G = {"name": "g", "parameters": {"type": "object", "properties": {}}}
CHAT_TOOL = {"type": "function", "function": G}
FLAT_TOOL = {"type": "function", **G}
CHAT_CHOICE = {"type": "function", "function": {"name": "g"}}
FLAT_CHOICE = {"type": "function", "name": "g"}
SCHEMA = {"name": "thing", "schema": {"type": "object"}}
CHAT_SCHEMA = {"type": "json_schema", "json_schema": SCHEMA}
FLAT_SCHEMA = {"type": "json_schema", **SCHEMA}
CALL = {"name": "g", "arguments": "{}"}
ITEM = {"type": "function_call", "call_id": "c", **CALL}
RESULT_ITEM = {"type": "function_call_output", "call_id": "c", "output": "1"}
CHAT_CALLS = [{"id": "c", "type": "function", "function": CALL}]

Case = tuple[dict[str, Any], str, str]

RESPONSES: list[Case] = [
    ({"max_tokens": 5}, "max_tokens", "right here is max_output_tokens"),
    ({"max_completion_tokens": 5}, "max_completion_tokens", "right here is max_output_tokens"),
    ({"input": None, "messages": MESSAGES}, "messages", "right here is input"),
    ({"tools": [FLAT_TOOL, CHAT_TOOL]}, "tools[1].function", foreign.FLAT_TOOL),
    (
        {"tools": [FLAT_TOOL], "tool_choice": CHAT_CHOICE},
        "tool_choice.function",
        foreign.FLAT_CHOICE,
    ),
    ({"response_format": CHAT_SCHEMA}, "response_format", foreign.FLAT_SCHEMA),
    ({"response_format": {"type": "json_object"}}, "response_format", "text: "),
    ({"text": {"format": CHAT_SCHEMA}}, "text.format.json_schema", foreign.FLAT_SCHEMA),
    ({"functions": [G]}, "functions", foreign.FLAT_TOOL),
    ({"function_call": {"name": "g"}}, "function_call", foreign.FLAT_CHOICE),
    (
        {"input": [{"role": "assistant", "content": "", "tool_calls": CHAT_CALLS}]},
        "input[0].tool_calls",
        foreign.CALL_ITEM,
    ),
    (
        {"input": [{"role": "tool", "tool_call_id": "c", "content": "1"}]},
        "input[0].role",
        foreign.RESULT_ITEM,
    ),
]
CHAT: list[Case] = [
    (
        {"max_output_tokens": 5},
        "max_output_tokens",
        "right here is max_tokens or max_completion_tokens",
    ),
    ({"messages": None, "input": "Hi"}, "input", "right here is messages"),
    ({"messages": None, "prompt": "Hi"}, "prompt", "right here is messages"),
    ({"tools": [CHAT_TOOL, FLAT_TOOL]}, "tools[1].name", foreign.CHAT_TOOL),
    ({"tools": [CHAT_TOOL], "tool_choice": FLAT_CHOICE}, "tool_choice.name", foreign.CHAT_CHOICE),
    ({"response_format": FLAT_SCHEMA}, "response_format.schema", foreign.CHAT_SCHEMA),
    ({"text": {"format": FLAT_SCHEMA}}, "text.format", foreign.CHAT_SCHEMA),
    ({"functions": [G]}, "functions", foreign.CHAT_TOOL),
    ({"function_call": {"name": "g"}}, "function_call", foreign.CHAT_CHOICE),
    ({"messages": [ITEM]}, "messages[0].type", foreign.CHAT_CALLS),
    ({"messages": [RESULT_ITEM]}, "messages[0].type", foreign.CHAT_RESULT),
    (
        {"messages": [{"role": "assistant", "content": None, "function_call": CALL}]},
        "messages[0].function_call",
        foreign.CHAT_CALLS,
    ),
    (
        {"messages": [{"role": "function", "name": "g", "content": "1"}]},
        "messages[0].role",
        foreign.CHAT_RESULT,
    ),
]
TEXT: list[Case] = [
    ({"max_output_tokens": 5}, "max_output_tokens", "right here is max_tokens"),
    ({"max_completion_tokens": 5}, "max_completion_tokens", "right here is max_tokens"),
    ({"prompt": None, "input": "Hi"}, "input", "right here is prompt"),
    ({"prompt": None, "messages": MESSAGES}, "messages", "right here is prompt"),
    ({"tools": [CHAT_TOOL]}, "tools", "/v1/chat/completions"),
    ({"tool_choice": "required"}, "tool_choice", "/v1/chat/completions"),
    ({"functions": [G]}, "functions", "/v1/chat/completions"),
    ({"function_call": {"name": "g"}}, "function_call", "/v1/chat/completions"),
    ({"text": {"format": FLAT_SCHEMA}}, "text.format", foreign.CHAT_SCHEMA),
    ({"response_format": FLAT_SCHEMA}, "response_format.schema", foreign.CHAT_SCHEMA),
]
PARSERS: Mapping[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "responses": (parse_create, {"input": "Hi"}),
    "chat": (parse_chat, {"messages": MESSAGES}),
    "text": (parse_text, {"prompt": "Hi"}),
}
CASES = [
    (api, *case)
    for api, cases in (("responses", RESPONSES), ("chat", CHAT), ("text", TEXT))
    for case in cases
]


@pytest.mark.parametrize(("api", "fields", "param", "right"), CASES, ids=lambda v: str(v)[:50])
def test_it_is_refused_by_its_field_and_the_right_form_is_said(
    api: str, fields: dict[str, Any], param: str, right: str
) -> None:
    parse, least = PARSERS[api]
    with pytest.raises(UserError) as caught:
        parse({**least, **fields}, Settings())
    assert (caught.value.code, caught.value.param) == ("unsupported_value", param)
    assert caught.value.message.startswith(f"{param} is ")
    assert right in caught.value.message


def test_the_right_forms_are_taken() -> None:
    create = parse_create(
        {
            "input": [{"role": "user", "content": "Hi"}, ITEM, RESULT_ITEM],
            "tools": [FLAT_TOOL],
            "tool_choice": FLAT_CHOICE,
        },
        Settings(),
    )
    assert [tool.name for tool in create.use.tools] == ["g"]
    chat = parse_chat(
        {
            "messages": [
                *MESSAGES,
                {"role": "assistant", "content": None, "tool_calls": CHAT_CALLS},
                {"role": "tool", "tool_call_id": "c", "content": "1"},
            ],
            "tools": [CHAT_TOOL],
            "tool_choice": CHAT_CHOICE,
        },
        Settings(),
    )
    assert [tool.name for tool in chat.use.tools] == ["g"]
    assert parse_create({"input": "Hi", "text": {"format": FLAT_SCHEMA}}, Settings())
    assert parse_chat({"messages": MESSAGES, "response_format": CHAT_SCHEMA}, Settings())


@pytest.mark.parametrize("api", list(PARSERS))
def test_what_asks_for_nothing_is_no_mistake(api: str) -> None:
    parse, least = PARSERS[api]
    nothing = {"functions": [], "function_call": "auto", "tools": None, "text": {}}
    assert parse({**least, **nothing}, Settings())


@pytest.mark.parametrize(
    ("api", "right", "beside"),
    [
        ("responses", {"max_output_tokens": 5}, {"max_tokens": 9, "messages": MESSAGES}),
        ("chat", {"max_tokens": 5}, {"max_output_tokens": 9, "input": "x", "prompt": "x"}),
        ("chat", {"max_completion_tokens": 5}, {"max_output_tokens": 9}),
        ("text", {"max_tokens": 5}, {"max_completion_tokens": 9, "messages": MESSAGES}),
    ],
)
def test_another_name_does_no_harm_beside_the_right_one(
    api: str, right: dict[str, Any], beside: dict[str, Any]
) -> None:
    """A client that writes both means the one that is read here."""
    parse, least = PARSERS[api]
    with_both = parse({**least, **right, **beside}, Settings())
    assert with_both == parse({**least, **right}, Settings())
    assert 5 in (
        getattr(with_both, "max_output_tokens", None),
        getattr(getattr(with_both, "common", None), "max_tokens", None),
    )


def test_a_response_in_the_background_cannot_be_left_unstored() -> None:
    with pytest.raises(UserError) as caught:
        parse_create({"input": "Hi", "background": True, "store": False}, Settings())
    assert (caught.value.code, caught.value.param) == ("unsupported_value", "background")
    assert "store is false" in caught.value.message
    assert "leave store out or true" in caught.value.message
