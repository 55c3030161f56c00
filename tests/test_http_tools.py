"""`tools` and `tool_choice`, items and messages of calls: read, echoed, refused by field."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.calls.tools import Call, Tool
from gateway.engine.conversation import Message
from gateway.http.completions.messages import parse_messages
from gateway.http.responses.items import parse_input
from gateway.http.responses.schema import parse_create
from gateway.http.tools import MOST_TOOLS, NO_PARAMETERS, parse_chat_tools, parse_tools
from gateway.settings import Settings
from models.errors import UserError

SCHEMA = {"type": "object", "properties": {"x": {"type": "number"}}}
F = {"name": "f", "description": "Does it.", "parameters": SCHEMA, "strict": True}
G = {"name": "g"}
TOOLS = (Tool("f", "Does it.", SCHEMA), Tool("g", None, NO_PARAMETERS))


def chat(*functions: Any, **fields: Any) -> dict[str, Any]:
    return {"tools": [{"type": "function", "function": each} for each in functions], **fields}


def responses(*functions: Any, **fields: Any) -> dict[str, Any]:
    return {"tools": [{"type": "function", **each} for each in functions], **fields}


def test_functions_and_who_may_call_them() -> None:
    for parse, written in ((parse_chat_tools, chat), (parse_tools, responses)):
        use = parse(written(F, G))
        assert (use.tools, use.must, use.several) == (TOOLS, False, True)
        assert parse(written(F, G, tool_choice="auto")).tools == TOOLS
        none = parse(written(F, G, tool_choice="none"))
        assert (none.tools, none.must) == ((), False)
        required = parse(written(F, G, tool_choice="required", parallel_tool_calls=False))
        assert (required.tools, required.must, required.several) == (TOOLS, True, False)
        for absent in ({}, {"tools": []}, {"tools": None, "tool_choice": "auto"}):
            assert parse(absent).tools == ()
    named = parse_chat_tools(
        chat(F, G, tool_choice={"type": "function", "function": {"name": "g"}})
    )
    assert (named.tools, named.must, named.several) == (TOOLS[1:], True, False)
    assert (
        parse_tools(responses(F, G, tool_choice={"type": "function", "name": "g"})).tools
        == (TOOLS[1:])
    )


def test_a_response_repeats_them() -> None:
    choice = {"type": "function", "name": "g"}
    request = parse_create({"input": "Hi", **responses(F, G, tool_choice=choice)}, Settings())
    assert request.echo["tools"] == [
        {"type": "function", **F},
        {"type": "function", "name": "g", "description": None, "parameters": None, "strict": None},
    ]
    assert request.echo["tool_choice"] == choice
    assert request.echo["parallel_tool_calls"] is True
    plain = parse_create({"input": "Hi"}, Settings())
    assert (plain.echo["tools"], plain.echo["tool_choice"]) == ([], "auto")


PARAMETERS = "tools[0].function.parameters"
BAD: list[tuple[dict[str, Any], str, str]] = [
    ({"tools": {}}, "invalid_type", "tools"),
    ({"tools": [7]}, "invalid_type", "tools[0]"),
    ({"tools": [{}]}, "missing_required_parameter", "tools[0].type"),
    ({"tools": [{"type": "web_search"}]}, "unsupported_value", "tools[0].type"),
    (chat(*[{"name": f"f{n}"} for n in range(MOST_TOOLS + 1)]), "unsupported_value", "tools"),
    ({"tools": [{"type": "function"}]}, "missing_required_parameter", "tools[0].function"),
    (chat({}), "missing_required_parameter", "tools[0].function.name"),
    (chat({"name": "a b"}), "invalid_value", "tools[0].function.name"),
    (chat({**G, "parameters": []}), "invalid_type", "tools[0].function.parameters"),
    (chat({**G, "parameters": {"type": "string"}}), "invalid_value", PARAMETERS),
    (chat({**G, "parameters": {"type": ["object", "null"]}}), "invalid_value", PARAMETERS),
    (chat({**G, "parameters": {"type": None}}), "invalid_value", PARAMETERS),
    (chat({**G, "strict": 1}), "invalid_type", "tools[0].function.strict"),
    (chat(G, G), "invalid_value", "tools[1]"),
    (chat(G, tool_choice="sometimes"), "unsupported_value", "tool_choice"),
    (chat(G, tool_choice=7), "invalid_type", "tool_choice"),
    (chat(G, tool_choice={"type": "allowed_tools"}), "unsupported_value", "tool_choice.type"),
    (
        chat(G, tool_choice={"type": "function"}),
        "missing_required_parameter",
        "tool_choice.function",
    ),
    (
        chat(G, tool_choice={"type": "function", "function": {"name": "f"}}),
        "invalid_value",
        "tool_choice",
    ),
    ({"tool_choice": "required"}, "missing_required_parameter", "tools"),
    (chat(G, parallel_tool_calls="no"), "invalid_type", "parallel_tool_calls"),
]


@pytest.mark.parametrize(("document", "code", "param"), BAD, ids=lambda value: str(value)[:60])
def test_a_bad_value_names_its_field(document: dict[str, Any], code: str, param: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_chat_tools(document)
    assert (caught.value.code, caught.value.param) == (code, param)


def test_arguments_are_an_object() -> None:
    with pytest.raises(UserError, match='its type is "object"') as caught:
        parse_tools(responses(F, {**G, "parameters": {"type": "string"}}))
    assert (caught.value.code, caught.value.param) == ("invalid_value", "tools[1].parameters")
    for parameters in ({}, {"type": "object"}, {"properties": {"a": {}}}):
        (tool,) = parse_tools(responses({**G, "parameters": parameters})).tools
        assert (tool.parameters, tool.param) == (parameters, "tools[0].parameters")


def test_messages_of_calls_and_results() -> None:
    function = {"name": "f", "arguments": '{"x": 1}'}
    messages = parse_messages(
        {
            "messages": [
                {
                    "role": "assistant",
                    "content": None,
                    "reasoning_content": "Hm.",
                    "tool_calls": [{"id": "c1", "type": "function", "function": function}],
                },
                {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "2"}]},
            ]
        }
    )
    assert messages == (
        Message("assistant", "", calls=(Call("c1", "f", '{"x": 1}'),), thought="Hm."),
        Message("tool", "2", call_id="c1"),
    )


def test_items_of_one_turn_are_one_message() -> None:
    call = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
    thought = [{"type": "reasoning_text", "text": "Hm."}]
    messages = parse_input(
        {
            "input": [
                {"role": "user", "content": "Hi"},
                {"type": "reasoning", "id": "rs_1", "summary": [], "content": thought},
                {"role": "assistant", "content": "Let me see."},
                call,
                {**call, "call_id": "c2", "id": "fc_2", "status": "completed"},
                {"type": "function_call_output", "call_id": "c1", "output": "1"},
                {
                    "type": "function_call_output",
                    "call_id": "c2",
                    "output": [{"type": "input_text", "text": "2"}],
                },
                {"type": "reasoning", "summary": [], "encrypted_content": "..."},
                call,
                {"type": "reasoning", "id": "rs_2", "summary": [], "content": thought},
                {"role": "user", "content": "So?"},
            ]
        }
    )
    f1, f2 = Call("c1", "f", "{}"), Call("c2", "f", "{}")
    assert messages == (
        Message("user", "Hi"),
        Message("assistant", "Let me see.", calls=(f1, f2), thought="Hm."),
        Message("tool", "1", call_id="c1"),
        Message("tool", "2", call_id="c2"),
        Message("assistant", "", calls=(f1,)),
        Message("user", "So?"),
    )


@pytest.mark.parametrize(
    ("item", "code", "field"),
    [
        ({"type": "function_call", "name": "f", "arguments": "{}"}, "missing", "call_id"),
        ({"type": "function_call", "call_id": "c", "name": 7, "arguments": ""}, "type", "name"),
        ({"type": "function_call_output", "output": "x"}, "missing", "call_id"),
        ({"type": "function_call_output", "call_id": "c"}, "missing", "output"),
        (
            {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_image"}]},
            "unsupported",
            "output[0].type",
        ),
        ({"type": "reasoning", "content": [{"type": "x"}]}, "unsupported", "content[0].type"),
    ],
)
def test_a_bad_item_names_its_field(item: dict[str, Any], code: str, field: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_input({"input": [item]})
    assert code in caught.value.code
    assert caught.value.param == f"input[0].{field}"


def test_nothing_but_a_thought_is_no_input() -> None:
    with pytest.raises(UserError) as caught:
        parse_input({"input": [{"type": "reasoning", "summary": []}]})
    assert (caught.value.code, caught.value.param) == ("missing_required_parameter", "input")
