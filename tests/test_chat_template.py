"""Chat templates, compared with transformers where both can render."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from models.chat_template import ChatTemplate
from models.errors import UserError

CONVERSATION: list[dict[str, Any]] = [
    {"role": "system", "content": "You answer briefly."},
    {"role": "user", "content": "What is <b>2 & 2</b>?"},
    {"role": "assistant", "content": "  four\n"},
    {"role": "user", "content": "Naïve 😀"},
]

LLAMA = """{%- if tools is not none %}TOOLS{% endif %}
{{- bos_token }}
{%- for message in messages %}
    {%- if loop.index0 is even and message['role'] == 'assistant' %}
        {{- raise_exception('roles must alternate') }}
    {%- endif %}
    {{- '[' + message['role'] + '] ' + message['content'] | trim + eos_token }}
{%- endfor %}
"""

WHITESPACE = """{% for message in messages %}
    {% if message.role == "system" %}
        {% continue %}
    {% endif %}
  {{ message.content }}
    {% if loop.index > 2 %}{% break %}{% endif %}
{% endfor %}
{% generation %}
{{ messages | tojson }}
{% endgeneration %}
{{ {"a": "<é>", "b": [1, none]} | tojson(indent=2) }}
"""


def reference(source: str, messages: list[dict[str, Any]], generate: bool) -> str:
    rendered, _ = render_jinja_template(
        conversations=[messages],
        chat_template=source,
        add_generation_prompt=generate,
        bos_token="<s>",
        eos_token="</s>",
    )
    return str(rendered[0])


@pytest.mark.parametrize("source", [LLAMA, WHITESPACE])
@pytest.mark.parametrize("generate", [True, False])
def test_renders_what_transformers_renders(source: str, generate: bool) -> None:
    messages = CONVERSATION if source is WHITESPACE else CONVERSATION[1:]
    template = ChatTemplate(source, bos_token="<s>", eos_token="</s>")
    assert template.render(messages, generate) == reference(source, messages, generate)


@pytest.mark.parametrize("generate", [True, False])
def test_the_demo_template_renders_what_transformers_renders(
    demo_package: Path, generate: bool
) -> None:
    source = (demo_package / "chat_template.jinja").read_text(encoding="utf-8")
    for messages in (CONVERSATION, CONVERSATION[1:]):
        rendered = ChatTemplate(source).render(messages, generate)
        assert rendered == reference(source, messages, generate)
        assert rendered.endswith("<|im_start|>assistant\n") == generate


def test_special_tokens_are_inserted_by_name() -> None:
    template = ChatTemplate("{{ bos_token }}|{{ pad_token }}|{{ eos_token }}", bos_token="<s>")
    assert template.render([]) == "<s>||"


def test_time_is_formatted() -> None:
    year = ChatTemplate("{{ strftime_now('%Y') }}").render([])
    assert year.isdigit()
    assert len(year) == 4


def test_the_template_s_own_refusal_is_the_user_s_error() -> None:
    messages = [{"role": "assistant", "content": "first"}]
    with pytest.raises(UserError, match="roles must alternate") as caught:
        ChatTemplate(LLAMA).render(messages)
    assert (caught.value.code, caught.value.param) == ("template_error", "messages")


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.__class__.__base__() }}",
        "{{ raise_exception.__globals__['json'] }}",
        "{{ cycler.__init__.__globals__['os'] }}",
        "{{ messages.append({'role': 'system', 'content': 'x'}) }}",
        "{{ messages[0].update({'content': 'x'}) }}",
        "{{ 'x'.format.__self__.__class__.__mro__ }}",
        "{{ '{0.__class__.__mro__}'.format(messages) }}",
        "{% for i in range(10000000) %}{% endfor %}",
        "{% include '/etc/passwd' %}",
    ],
)
def test_the_sandbox_holds(source: str) -> None:
    messages = [{"role": "user", "content": "unchanged"}]
    with pytest.raises(UserError) as caught:
        ChatTemplate(source).render(messages)
    assert caught.value.code == "template_error"
    assert messages == [{"role": "user", "content": "unchanged"}]


def test_content_that_the_template_cannot_use_is_the_user_s_error() -> None:
    parts = [{"type": "text", "text": "a list of parts is for the caller to join"}]
    with pytest.raises(UserError) as caught:
        ChatTemplate("{{ 'x' + messages[0].content }}").render([{"role": "u", "content": parts}])
    assert caught.value.code == "template_error"


def test_an_invalid_template_is_refused_at_once() -> None:
    with pytest.raises(UserError, match="not valid") as caught:
        ChatTemplate("{% if %}")
    assert caught.value.code == "template_error"
