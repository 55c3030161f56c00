"""What a body for `/v1/chat/completions` may say: read, tolerated, refused by field."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.http.completions.messages import parse_messages
from gateway.http.completions.schema import MOST_CHOICES, parse_chat
from gateway.settings import Settings
from models.errors import UserError
from tests.chat_requests import MESSAGES


def test_messages_of_every_role_and_form() -> None:
    messages = parse_messages(
        {
            "messages": [
                {"role": "developer", "content": "Be brief."},
                {"role": "system", "content": [{"type": "text", "text": "Be kind."}]},
                {
                    "role": "user",
                    "name": "ann",
                    "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
                },
                {"role": "assistant", "content": "c", "tool_calls": [], "refusal": None},
            ]
        }
    )
    assert [(message.role, message.content) for message in messages] == [
        ("system", "Be brief."),
        ("system", "Be kind."),
        ("user", "ab"),
        ("assistant", "c"),
    ]


TOLERATED: list[dict[str, Any]] = [
    {"tools": [], "tool_choice": "none", "parallel_tool_calls": True},
    {"functions": [], "function_call": "auto"},
    {"response_format": {"type": "text"}},
    {"modalities": ["text"]},
    {"service_tier": "auto"},
    {"n": None, "stop": None, "logprobs": None, "top_logprobs": None, "tools": None},
    {"logprobs": False, "top_logprobs": 0},
    {"stream_options": {"include_usage": True}},
]


@pytest.mark.parametrize("fields", TOLERATED, ids=lambda value: str(value)[:60])
def test_what_means_nothing_is_tolerated(fields: dict[str, Any]) -> None:
    wanted = parse_chat({"messages": MESSAGES, **fields}, Settings())
    assert wanted.common.n == 1
    assert wanted.common.top_logprobs is None
    assert not wanted.common.stream


BAD: list[tuple[dict[str, Any], str, str]] = [
    ({"messages": None}, "missing_required_parameter", "messages"),
    ({"messages": []}, "missing_required_parameter", "messages"),
    ({"messages": "Hi"}, "invalid_type", "messages"),
    ({"messages": [7]}, "invalid_type", "messages[0]"),
    ({"messages": [{"content": "x"}]}, "missing_required_parameter", "messages[0].role"),
    ({"messages": [{"role": "user"}]}, "missing_required_parameter", "messages[0].content"),
    ({"messages": [{"role": "user", "content": 7}]}, "invalid_type", "messages[0].content"),
    (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
        "unsupported_value",
        "messages[0].content[0].type",
    ),
    ({"messages": [{"role": "robot", "content": "x"}]}, "unsupported_value", "messages[0].role"),
    (
        {"messages": [*MESSAGES, {"role": "tool", "content": "x"}]},
        "missing_required_parameter",
        "messages[1].tool_call_id",
    ),
    (
        {"messages": [{"role": "tool", "tool_call_id": "x"}]},
        "missing_required_parameter",
        "messages[0].content",
    ),
    (
        {"messages": [{"role": "assistant", "content": None, "tool_calls": [{"id": "x"}]}]},
        "missing_required_parameter",
        "messages[0].tool_calls[0].function",
    ),
    (
        {"messages": [{"role": "assistant", "tool_calls": [{"id": "x", "type": "custom"}]}]},
        "unsupported_value",
        "messages[0].tool_calls[0].type",
    ),
    (
        {"messages": [{"role": "assistant", "content": None, "tool_calls": []}]},
        "missing_required_parameter",
        "messages[0].content",
    ),
    ({"max_tokens": 0}, "invalid_value", "max_tokens"),
    ({"max_completion_tokens": -1}, "invalid_value", "max_completion_tokens"),
    ({"max_tokens": "5"}, "invalid_type", "max_tokens"),
    ({"n": 0}, "unsupported_value", "n"),
    ({"n": MOST_CHOICES + 1}, "unsupported_value", "n"),
    ({"n": True}, "invalid_type", "n"),
    ({"logprobs": 3}, "invalid_type", "logprobs"),
    ({"top_logprobs": 3}, "invalid_value", "top_logprobs"),
    ({"logprobs": True, "top_logprobs": 21}, "unsupported_value", "top_logprobs"),
    ({"temperature": 2.5}, "unsupported_value", "temperature"),
    ({"stop": [""]}, "invalid_value", "stop[0]"),
    ({"logit_bias": {"x": 1}}, "invalid_value", "logit_bias"),
    ({"stream": "yes"}, "invalid_type", "stream"),
    ({"stream_options": []}, "invalid_type", "stream_options"),
    ({"stream_options": {"include_usage": 1}}, "invalid_type", "stream_options.include_usage"),
    ({"speculation": {"rule": "magic"}}, "unsupported_value", "speculation.rule"),
    ({"functions": [{"name": "f"}]}, "unsupported_value", "functions"),
    ({"function_call": {"name": "f"}}, "unsupported_value", "function_call"),
    ({"response_format": {"type": "xml"}}, "unsupported_value", "response_format.type"),
    ({"response_format": "json"}, "invalid_type", "response_format"),
    ({"modalities": ["text", "audio"]}, "unsupported_value", "modalities"),
    ({"audio": {"voice": "alloy"}}, "unsupported_value", "audio"),
    ({"prediction": {"type": "content"}}, "missing_required_parameter", "prediction.content"),
    ({"web_search_options": {}}, "unsupported_value", "web_search_options"),
    ({"reasoning_effort": 3}, "invalid_type", "reasoning_effort"),
]


@pytest.mark.parametrize(("fields", "code", "param"), BAD, ids=lambda value: str(value)[:60])
def test_a_bad_value_names_its_field(fields: dict[str, Any], code: str, param: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_chat({"messages": MESSAGES, **fields}, Settings())
    assert (caught.value.code, caught.value.param) == (code, param)
    assert param in caught.value.message


def test_refusals_say_that_a_later_version_may_know_more() -> None:
    for fields in ({"audio": {}}, {"modalities": ["audio"]}):
        with pytest.raises(UserError, match="not supported by this version"):
            parse_chat({"messages": MESSAGES, **fields}, Settings())
    with pytest.raises(UserError, match=f"n must be from 1 to {MOST_CHOICES}, not 99"):
        parse_chat({"messages": MESSAGES, "n": 99}, Settings())
