"""What a chat template says of the model that it is for."""

from __future__ import annotations

import pytest

from gateway.calls.dialects import Manner, manner_of, special_marks

QWEN = "{%- if tools %}# Tools ... <tool_call></tool_call>{% endif %}"
TEMPLATES: list[tuple[str | None, Manner]] = [
    (None, Manner("hermes", told=False)),
    ("{{ messages }}", Manner("hermes", told=False)),
    (QWEN, Manner("hermes", told=True)),
    (QWEN + "{{ '<think>\n\n</think>' }}", Manner("hermes", told=True, thinks=True)),
    ("{{ tools }} <|python_tag|>", Manner("llama3", told=True)),
    ("{{ tools }} [TOOL_CALLS]", Manner("mistral", told=True)),
    ("{{ tools }} [TOOL_CALLS] [ARGS]", Manner("mistral", told=True, named_arguments=True)),
    ("{{ tools }} in some other form", Manner("hermes", told=True)),
]


@pytest.mark.parametrize(("template", "expected"), TEMPLATES, ids=lambda value: str(value)[:40])
def test_manners(template: str | None, expected: Manner) -> None:
    assert manner_of(template) == expected


def test_the_key_of_arguments() -> None:
    assert Manner("llama3", told=True).arguments == "parameters"
    assert Manner("hermes", told=True).arguments == "arguments"


def test_marks_that_are_special_tokens() -> None:
    known = {"<think>": 5, "</think>": 6, "[ARGS]": 7}
    assert special_marks(known.get, frozenset({5, 7, 9})) == {"<think>": 5, "[ARGS]": 7}
