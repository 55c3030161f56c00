"""Chat templates: messages to prompt text, in the dialect that checkpoints are published with.

A template is code from the internet, so it runs in jinja2's immutable sandbox.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

import jinja2
import jinja2.ext
from jinja2 import nodes
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from models.errors import UserError


class ChatTemplate:
    """A compiled template. Immutable; safe to share between requests.

    `special_tokens` are the texts that a template inserts by name (`bos_token`, `eos_token`, ...).
    """

    def __init__(self, source: str, **special_tokens: str) -> None:
        """Raises `UserError` (code `template_error`) where `source` is not a valid template."""
        self._special_tokens = special_tokens
        self.source = source
        try:
            self._template = _environment().from_string(source)
        except jinja2.TemplateError as error:
            raise UserError(
                f"the chat template is not valid: {error}", code="template_error"
            ) from error

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        thinking: bool | None = None,
    ) -> str:
        """The prompt for `messages`, each with `role` and `content`.

        `tools` are functions that may be called, as transformers describes them; `thinking` is what
        templates call `enable_thinking`, and None leaves it to them. Most templates concatenate
        `content` and so need it to be text: a list of text parts must be joined by the caller.
        Raises `UserError` (code `template_error`) with the template's own words where it refuses
        the messages.
        """
        chosen = {} if thinking is None else {"enable_thinking": thinking}
        try:
            return self._template.render(
                messages=messages,
                add_generation_prompt=add_generation_prompt,
                # Templates tell "none" from "undefined".
                tools=tools,
                documents=None,
                **chosen,
                **self._special_tokens,
            )
        # A template can raise whatever an expression can.
        except Exception as error:
            raise UserError(
                f"the chat template refused the messages: {error}",
                code="template_error",
                param="messages",
            ) from error


class _Generation(jinja2.ext.Extension):
    """`{% generation %}` marks the assistant's words for training; here it is only its content."""

    tags = {"generation"}  # noqa: RUF012 (the base class declares it so)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[jinja2.ext.loopcontrols, _Generation],
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as it is: jinja2's own filter escapes HTML, which a model has never seen."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.now().astimezone().strftime(form)
