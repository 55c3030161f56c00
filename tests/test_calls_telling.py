"""Functions, their calls and results in a prompt: as the template wants them, or in words."""

from __future__ import annotations

import json

from gateway.calls.telling import example
from gateway.calls.tools import Call, Tool, spelled
from gateway.engine.conversation import Message, build_prompt
from models.chat_template import ChatTemplate
from tests.calls_support import NOTHING, WEATHER
from tests.checkpoints import CHAT_TEMPLATE
from tests.fake_engine import BracketTemplate, CharacterTokenizer

CALL = Call("call_1", "get_weather", '{"town": "Bonn"}')
TALK = (
    Message("user", "The weather?"),
    Message("assistant", "", calls=(CALL, Call("call_2", "stop", "{}"))),
    Message("tool", "Rain.", call_id="call_1"),
    Message("tool", "Ok.", call_id="call_2"),
)
WRITTEN = '<tool_call>\n{"name": "get_weather", "arguments": {"town": "Bonn"}}\n</tool_call>'


def test_a_template_that_knows_of_functions_is_given_them() -> None:
    prompt = build_prompt(
        CharacterTokenizer(), BracketTemplate(), TALK, tools=(WEATHER, NOTHING), thinking=False
    )
    assert prompt.text == (
        "<tools>get_weather,stop</><thinking>False</><user>The weather?</>"
        f"<assistant>{WRITTEN}\n"
        '<tool_call>\n{"name": "stop", "arguments": {}}\n</tool_call></>'
        "<tool>get_weather\nRain.</><tool>stop\nOk.</><assistant>"
    )
    assert prompt.messages == TALK


def test_templates_of_transformers_read_them() -> None:
    template = ChatTemplate(
        "{% for tool in tools or [] %}{{ tool | tojson }}\n{% endfor %}"
        "{% for message in messages %}{{ message.role }}: {{ message.content }}"
        "{% for call in message.tool_calls %}{{ call.id }} {{ call.function.name }}"
        " {{ call.function.arguments.town }}{% endfor %}"
        "{{ message.tool_call_id }} {{ message.reasoning_content }}\n{% endfor %}"
        "{{ enable_thinking }}"
    )
    said = (
        Message("user", "Hi"),
        Message("assistant", "", calls=(CALL,), thought="Hm."),
        Message("tool", "Rain.", call_id="call_1"),
    )
    prompt = build_prompt(CharacterTokenizer(), template, said, tools=(NOTHING,), thinking=True)
    assert prompt.text.splitlines() == [
        json.dumps(
            {"type": "function", "function": {"name": "stop", "parameters": NOTHING.parameters}}
        ),
        "user: Hi ",
        "assistant: call_1 get_weather Bonn Hm.",
        "tool: Rain.call_1 ",
        "True",
    ]
    plain = build_prompt(CharacterTokenizer(), template, [Message("user", "Hi")])
    assert plain.text == "user: Hi \n"


def test_a_template_that_does_not_is_told_in_words() -> None:
    template = ChatTemplate(CHAT_TEMPLATE)
    text = build_prompt(CharacterTokenizer(), template, TALK, tools=(WEATHER,)).text
    system, asked, shown, user, assistant, results, rest = text.split("<|im_end|>\n")
    assert system.startswith("<|im_start|>system\n# Tools\n\nYou can call functions")
    assert json.dumps(WEATHER.described()) in system
    assert asked == "<|im_start|>user\nThe weather in a town.: example"
    assert shown == (
        '<|im_start|>assistant\n<tool_call>\n{"name": "get_weather", "arguments":'
        ' {"town": "example", "unit": "celsius"}}\n</tool_call>'
    )
    assert user == "<|im_start|>user\nThe weather?"
    assert assistant == (
        f"<|im_start|>assistant\n{WRITTEN}\n"
        '<tool_call>\n{"name": "stop", "arguments": {}}\n</tool_call>'
    )
    assert results == (
        "<|im_start|>user\n<tool_response>\nRain.\n</tool_response>\n"
        "<tool_response>\nOk.\n</tool_response>"
    )
    assert rest == "<|im_start|>assistant\n"
    instructed = build_prompt(
        CharacterTokenizer(), template, TALK[:1], instructions="Be brief.", tools=(WEATHER,)
    ).text
    assert instructed.startswith("<|im_start|>system\nBe brief.\n\n# Tools\n\n")
    plain = build_prompt(CharacterTokenizer(), template, TALK[:1]).text
    assert plain.startswith("<|im_start|>user")


def test_an_example_has_a_value_of_each_arguments_kind() -> None:
    properties = {
        "text": {"type": "string"},
        "whole": {"type": "integer"},
        "part": {"type": ["number", "null"]},
        "yes": {"type": "boolean"},
        "list": {"type": "array", "items": {"type": "string"}},
        "form": {"type": "object"},
        "fixed": {"const": 7},
        "chosen": {"enum": ["b", "a"]},
        "anything": True,
        "unknown": {"$ref": "#/$defs/x"},
    }
    tool = Tool("f", "What it does.\nAt length.", {"type": "object", "properties": properties})
    asked, called = example(tool)
    assert asked == "What it does.: example"
    arguments = json.loads(called.removeprefix("<tool_call>\n").removesuffix("\n</tool_call>"))
    assert arguments == {
        "name": "f",
        "arguments": {
            "text": "example",
            "whole": 1,
            "part": 1.5,
            "yes": True,
            "list": [],
            "form": {},
            "fixed": 7,
            "chosen": "b",
            "anything": "example",
            "unknown": "example",
        },
    }


def test_an_example_of_a_function_without_anything() -> None:
    assert example(Tool("f", None, {"type": "object"})) == (
        "f: example",
        '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>',
    )
    assert len(example(Tool("f", "x" * 1000, {"type": "object"}))[0]) < 220


def test_special_tokens_in_functions_calls_and_results_are_text() -> None:
    tokenizer = CharacterTokenizer()
    tokenizer.special_tokens = ("</>",)
    forged = Call("</>", "f", '{"a": "</>"}')
    build_prompt(
        tokenizer,
        BracketTemplate(),
        [Message("assistant", "", calls=(forged,)), Message("tool", "</>", call_id="</>")],
    )
    # The template's own ends of two messages are all that is left in one piece.
    assert sum(piece.count("</>") for piece in tokenizer.encoded) == 2
    assert "".join(tokenizer.encoded).count("</>") == 4


def test_every_text_of_a_value_is_spelled() -> None:
    value = {"a": ["a", 1, {"b": "a"}], "c": None, "d": ("a",)}
    assert spelled(value, str.upper) == {"A": ["A", 1, {"B": "A"}], "C": None, "D": ["A"]}


def test_arguments_that_are_no_json_stay_as_they_were_written() -> None:
    assert Call("x", "f", "{broken").described()["function"]["arguments"] == "{broken"


def test_a_conversation_goes_on_behind_what_the_model_wrote() -> None:
    """What was generated is not encoded anew where the template writes it the same way."""
    tokenizer = CharacterTokenizer()
    first = build_prompt(tokenizer, BracketTemplate(), TALK[:1], tools=(WEATHER,))
    message = Message("assistant", "", calls=(CALL,))
    turn = first.answered(WRITTEN, [7, 8, 9], message)
    assert turn.messages == (*TALK[:1], message)
    result = Message("tool", "Rain.", call_id="call_1")
    second = build_prompt(tokenizer, BracketTemplate(), [result], previous=turn, tools=(WEATHER,))
    assert second.ids[: len(first.ids) + 3] == (*first.ids, 7, 8, 9)
    assert second.text.endswith("</><tool>get_weather\nRain.</><assistant>")
