"""What a request may say: wrong types, values that cannot be honoured, and what is tolerated."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.engine.conversation import Message
from gateway.engine.requests import Speculation
from gateway.http.responses.schema import parse_create, parse_stream_id
from gateway.http.sampling import Decoding
from gateway.settings import Settings
from models.errors import UserError
from models.sampling.parameters import Sampling

DEFAULTS = Settings()
TEXT = {"input": "Hi"}

WRONG_TYPES: list[tuple[dict[str, Any], str]] = [
    ({"input": 7}, "input"),
    ({"input": {"role": "user"}}, "input"),
    ({"input": [7]}, "input[0]"),
    ({"input": [{"role": 7, "content": "x"}]}, "input[0].role"),
    ({"input": [{"role": "user", "content": 7}]}, "input[0].content"),
    ({"input": [{"role": "user", "content": [7]}]}, "input[0].content[0]"),
    (
        {"input": [{"role": "user", "content": [{"type": "input_text", "text": 7}]}]},
        "input[0].content[0].text",
    ),
    (
        {"input": [{"role": "user", "content": "a"}, {"type": 1, "role": "user", "content": "x"}]},
        "input[1].type",
    ),
    ({**TEXT, "model": 7}, "model"),
    ({**TEXT, "instructions": ["x"]}, "instructions"),
    ({**TEXT, "previous_response_id": 7}, "previous_response_id"),
    ({**TEXT, "max_output_tokens": "7"}, "max_output_tokens"),
    ({**TEXT, "max_output_tokens": 7.5}, "max_output_tokens"),
    ({**TEXT, "max_output_tokens": True}, "max_output_tokens"),
    ({**TEXT, "store": "false"}, "store"),
    ({**TEXT, "stream": 1}, "stream"),
    ({**TEXT, "tools": {}}, "tools"),
    ({**TEXT, "text": "plain"}, "text"),
    ({**TEXT, "text": {"format": "text"}}, "text.format"),
    ({**TEXT, "metadata": [1]}, "metadata"),
    ({**TEXT, "metadata": {"a": 1}}, "metadata.a"),
    ({**TEXT, "metadata": {"a" * 500: 1}}, "metadata." + "a" * 77 + "..."),
    ({**TEXT, "include": "speculation"}, "include"),
    ({**TEXT, "include": [7]}, "include[0]"),
    ({**TEXT, "generate": 0}, "generate"),
    ({**TEXT, "reasoning": "low"}, "reasoning"),
    ({**TEXT, "parallel_tool_calls": 1}, "parallel_tool_calls"),
    ({**TEXT, "safety_identifier": 1}, "safety_identifier"),
    ({**TEXT, "top_logprobs": 5.0}, "top_logprobs"),
    ({**TEXT, "top_logprobs": True}, "top_logprobs"),
    ({**TEXT, "temperature": "0"}, "temperature"),
    ({**TEXT, "speculation": "off"}, "speculation"),
]


@pytest.mark.parametrize(("document", "param"), WRONG_TYPES, ids=lambda value: str(value)[:60])
def test_a_wrong_type_names_its_field(document: dict[str, Any], param: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_create(document, DEFAULTS)
    assert (caught.value.code, caught.value.param) == ("invalid_type", param)
    assert param in caught.value.message


NOT_HONOURED: list[tuple[dict[str, Any], str]] = [
    ({"top_logprobs": 21}, "top_logprobs"),
    ({"top_logprobs": -1}, "top_logprobs"),
    ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
    ({"tool_choice": "always"}, "tool_choice"),
    ({"tool_choice": {"type": "web_search"}}, "tool_choice.type"),
    ({"text": {"format": {"type": "xml"}}}, "text.format.type"),
    ({"text": {"verbosity": "low"}}, "text.verbosity"),
    ({"truncation": "auto"}, "truncation"),
    ({"background": True, "store": False}, "background"),
    ({"conversation": "conv_1"}, "conversation"),
    ({"conversation": {"id": "conv_1"}}, "conversation"),
    ({"prompt": {"id": "p"}}, "prompt"),
    ({"moderation": {"model": "m"}}, "moderation"),
    ({"context_management": [{"type": "compaction"}]}, "context_management"),
    ({"service_tier": "flex"}, "service_tier"),
    ({"reasoning": {"summary": "auto"}}, "reasoning.summary"),
    ({"include": ["speculation", "everything"]}, "include[1]"),
    ({"input": [{"type": "web_search_call", "id": "c"}]}, "input[0].type"),
    ({"input": [{"role": "robot", "content": "x"}]}, "input[0].role"),
    (
        {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]},
        "input[0].content[0].type",
    ),
]


@pytest.mark.parametrize(("fields", "param"), NOT_HONOURED, ids=lambda value: str(value)[:60])
def test_what_cannot_be_honoured_is_refused(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_create({**TEXT, **fields}, DEFAULTS)
    assert (caught.value.code, caught.value.param) == ("unsupported_value", param)


def test_a_background_response_is_stored() -> None:
    assert not parse_create(TEXT, DEFAULTS).background
    request = parse_create({**TEXT, "background": True}, DEFAULTS)
    assert (request.background, request.store) == (True, True)
    with pytest.raises(UserError) as caught:
        parse_create({**TEXT, "background": "yes"}, DEFAULTS)
    assert (caught.value.code, caught.value.param) == ("invalid_type", "background")


def test_a_refusal_says_what_is_accepted() -> None:
    with pytest.raises(UserError, match=r'truncation "auto" is not supported; accepted: "disab'):
        parse_create({**TEXT, "truncation": "auto"}, DEFAULTS)
    with pytest.raises(UserError, match=r"accepted: .*'speculation'"):
        parse_create({**TEXT, "include": ["everything"]}, DEFAULTS)


MISSING_OR_OUT_OF_RANGE: list[tuple[dict[str, Any], str, str]] = [
    ({}, "missing_required_parameter", "input"),
    ({"input": None}, "missing_required_parameter", "input"),
    ({"input": []}, "missing_required_parameter", "input"),
    ({"input": [{"role": "user"}]}, "missing_required_parameter", "input[0].type"),
    (
        {"input": [{"type": "message", "content": "x"}]},
        "missing_required_parameter",
        "input[0].role",
    ),
    (
        {"input": [{"type": "message", "role": "user"}]},
        "missing_required_parameter",
        "input[0].content",
    ),
    ({**TEXT, "max_output_tokens": 0}, "invalid_value", "max_output_tokens"),
    ({**TEXT, "max_output_tokens": -5}, "invalid_value", "max_output_tokens"),
    ({**TEXT, "metadata": {str(n): "x" for n in range(17)}}, "invalid_value", "metadata"),
    ({**TEXT, "metadata": {"k" * 65: "x"}}, "invalid_value", "metadata"),
    ({**TEXT, "metadata": {"k": "x" * 513}}, "invalid_value", "metadata"),
]


@pytest.mark.parametrize(("document", "code", "param"), MISSING_OR_OUT_OF_RANGE)
def test_what_is_missing_or_out_of_range(document: dict[str, Any], code: str, param: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_create(document, DEFAULTS)
    assert (caught.value.code, caught.value.param) == (code, param)


def test_input_forms_become_messages() -> None:
    request = parse_create(
        {
            "input": [
                {"role": "developer", "content": "Be brief."},
                {
                    "type": "message",
                    "role": "user",
                    "content": [
                        {"type": "input_text", "text": "a"},
                        {"type": "input_text", "text": "b"},
                    ],
                },
                {
                    "type": "message",
                    "id": "msg_1",
                    "status": "completed",
                    "role": "assistant",
                    "content": [{"type": "output_text", "text": "c", "annotations": []}],
                },
                {"role": "user", "content": ""},
            ]
        },
        DEFAULTS,
    )
    assert request.messages == (
        Message("system", "Be brief."),
        Message("user", "ab"),
        Message("assistant", "c"),
        Message("user", ""),
    )
    assert parse_create(TEXT, DEFAULTS).messages == (Message("user", "Hi"),)


def test_what_changes_nothing_is_accepted() -> None:
    request = parse_create(
        {
            **TEXT,
            "tools": [],
            "tool_choice": "none",
            "text": {"format": {"type": "text"}, "verbosity": "medium"},
            "truncation": "disabled",
            "background": False,
            "generate": True,
            "reasoning": {"effort": None},
            "service_tier": "auto",
            "include": ["reasoning.encrypted_content"],
            "stream": True,
            "stream_options": {"include_obfuscation": False},
            "user": "me",
            "something_of_next_year": {"x": 1},
            "max_tool_calls": 3,
        },
        DEFAULTS,
    )
    assert request.stream
    assert not request.provenance
    assert request.store
    assert request.echo["tool_choice"] == "none"
    assert request.echo["max_tool_calls"] == 3
    assert request.generate
    assert parse_create(TEXT, DEFAULTS).generate
    assert not parse_create({**TEXT, "generate": False}, DEFAULTS).generate


def test_null_is_absent() -> None:
    names = (
        "temperature",
        "top_p",
        "top_logprobs",
        "seed",
        "stop",
        "logit_bias",
        "tools",
        "text",
        "metadata",
        "store",
        "instructions",
    )
    names += ("max_output_tokens", "previous_response_id", "include", "speculation", "model")
    request = parse_create({**TEXT, **dict.fromkeys(names)}, DEFAULTS)
    assert request == parse_create(TEXT, DEFAULTS)


def test_the_shared_fields_reach_the_request() -> None:
    request = parse_create(
        {**TEXT, "seed": 7, "stop": "x", "speculation": {"length": 2}}, Settings(temperature=0.5)
    )
    assert request.decoding == Decoding(
        sampling=Sampling(temperature=0.5, seed=7), stop=("x",), speculation=Speculation(length=2)
    )


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({}, None),
        ({"top_logprobs": 0}, None),
        ({"top_logprobs": 3}, 3),
        ({"top_logprobs": 20, "include": ["message.output_text.logprobs"]}, 20),
        ({"include": ["message.output_text.logprobs"]}, 0),
        ({"include": ["speculation"]}, None),
    ],
)
def test_logprobs_are_told_to_who_includes_them_or_asks_for_some(
    fields: dict[str, Any], wanted: int | None
) -> None:
    assert parse_create({**TEXT, **fields}, DEFAULTS).top_logprobs == wanted


def test_stream_ids() -> None:
    assert parse_stream_id({}) is None
    assert parse_stream_id({"stream_id": "A-z_0.9"}) == "A-z_0.9"
    assert parse_stream_id({"stream_id": "x" * 256}) == "x" * 256
    with pytest.raises(UserError):
        parse_stream_id({"stream_id": "line\n"})
