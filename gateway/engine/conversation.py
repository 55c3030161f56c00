"""From messages to prompt ids, so that a conversation finds its own K/V again.

A turn keeps the exact text and ids that the target has seen. When the next turn's rendering begins
with that text, only the rest is encoded: the ids are then a true extension of the slot's, even
where encoding the whole text would have split the answer into other tokens.

Special tokens are the template's to write. Where a message spells one out (`<|im_end|>` in a pasted
file) it is text about a token, not the token: nobody who is quoted can open a turn of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, Protocol

from gateway.calls.telling import example, introduction, response, written
from gateway.calls.tools import Call, Tool, spelled
from models.errors import UserError

Role = Literal["system", "user", "assistant", "tool"]

_SPELLED = "\udfff"
"""Stands inside a special token that a message spells out; text is encoded piece by piece between
these. A lone surrogate, which decoded JSON never holds."""


class Encoder(Protocol):
    """What is needed of `models.tokenizer.Tokenizer`."""

    @property
    def special_tokens(self) -> Sequence[str]: ...

    def encode(self, text: str) -> list[int]: ...


class Template(Protocol):
    """What is needed of `models.chat_template.ChatTemplate`."""

    @property
    def source(self) -> str: ...

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        thinking: bool | None = None,
    ) -> str: ...


@dataclass(frozen=True, slots=True)
class Message:
    """What was said. An assistant's may hold `calls`, and what it thought before; a tool's is the
    result of the call `call_id`."""

    role: Role
    content: str
    calls: tuple[Call, ...] = ()
    thought: str = ""
    call_id: str | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """A conversation up to and including an answer.

    `messages` are what was said, without the instructions of single requests. `text` is the
    rendered prompt and the answer behind it, `ids` the tokens of both as the target saw them:
    those of `tokenizer`, where more than one is about.
    """

    messages: tuple[Message, ...]
    text: str
    ids: tuple[int, ...]
    tokenizer: str | None = None


@dataclass(frozen=True, slots=True)
class Prompt:
    """What the target is to continue: `messages` as in `Turn`, `text` and its `ids`."""

    messages: tuple[Message, ...]
    text: str
    ids: tuple[int, ...]

    def answered(self, text: str, ids: Sequence[int], message: Message | None = None) -> Turn:
        """`message` is what `text` says, where that is not the text itself."""
        return Turn(
            messages=(*self.messages, message or Message("assistant", text)),
            text=self.text + text,
            ids=(*self.ids, *ids),
        )


def build_prompt(
    encoder: Encoder,
    template: Template | None,
    messages: Sequence[Message],
    *,
    instructions: str | None = None,
    previous: Turn | None = None,
    tools: Sequence[Tool] = (),
    thinking: bool | None = None,
) -> Prompt:
    """The prompt of `messages` behind `previous`, with `instructions` as its system message.

    `tools` may be called; `thinking` asks a model that can to think first, or not to. Without a
    template (a base model) the texts are simply joined, special tokens in them are what they say.
    Raises `UserError` (`template_error`, or `missing_required_parameter` when there is nothing to
    continue).
    """
    said = (*(previous.messages if previous else ()), *messages)
    spoken = (Message("system", instructions), *said) if instructions else said
    text = _render(template, spoken, encoder.special_tokens, tools, thinking)
    if previous is not None and text.startswith(previous.text):
        ids = (*previous.ids, *_encode(encoder, text[len(previous.text) :]))
    else:
        ids = tuple(_encode(encoder, text))
    if not ids:
        raise UserError(
            "input is empty: there is no text to continue.",
            code="missing_required_parameter",
            param="input",
        )
    return Prompt(messages=said, text=text, ids=ids)


def _encode(encoder: Encoder, text: str) -> list[int]:
    return [token for piece in text.split(_SPELLED) for token in encoder.encode(piece)]


def _spelled_out(text: str, special_tokens: Sequence[str]) -> str:
    for token in special_tokens:
        text = text.replace(token, token[:1] + _SPELLED + token[1:])
    return text


def _render(
    template: Template | None,
    messages: Sequence[Message],
    special_tokens: Sequence[str],
    tools: Sequence[Tool],
    thinking: bool | None,
) -> str:
    if template is None:
        return "".join(message.content for message in messages)
    if "tools" not in template.source:
        messages, tools = _in_words(messages, tools), ()
    spell = partial(_spelled_out, special_tokens=special_tokens)
    names = {call.id: call.name for message in messages for call in message.calls}
    described = [_described(message, names) for message in messages]
    return template.render(
        [
            {"role": message.role, **spelled(fields, spell)}
            for message, fields in zip(messages, described, strict=True)
        ],
        tools=[spelled(tool.described(), spell) for tool in tools] or None,
        thinking=thinking,
    )


def _in_words(messages: Sequence[Message], tools: Sequence[Tool]) -> list[Message]:
    """For a template that knows of no functions: they, their calls and results as text."""
    said: list[Message] = []
    results = False
    for message in messages:
        if message.role == "tool":
            before = f"{said.pop().content}\n" if results else ""
            said.append(Message("user", before + response(message.content)))
        elif message.calls:
            said.append(Message("assistant", written(message.content, message.calls)))
        else:
            said.append(message)
        results = message.role == "tool"
    if not tools:
        return said
    told = introduction(tools)
    asked, called = example(tools[0])
    shown = (Message("user", asked), Message("assistant", called))
    if said and said[0].role == "system":
        return [replace(said[0], content=f"{said[0].content}\n\n{told}"), *shown, *said[1:]]
    return [Message("system", told), *shown, *said]


def _described(message: Message, names: Mapping[str, str]) -> dict[str, Any]:
    """As templates want it; what a message does not have it does not mention. `names` are those of
    the functions that were called, by the calls' ids."""
    fields: dict[str, Any] = {"content": message.content}
    if message.calls:
        fields["tool_calls"] = [call.described() for call in message.calls]
    if message.thought:
        fields["reasoning_content"] = message.thought
    if message.call_id is not None:
        fields["tool_call_id"] = message.call_id
        if message.call_id in names:
            fields["name"] = names[message.call_id]
    return fields
