"""From messages to prompt ids, so that a conversation finds its own K/V again.

A turn keeps the exact text and ids that the target has seen. When the next turn's rendering begins
with that text, only the rest is encoded: the ids are then a true extension of the slot's, even
where encoding the whole text would have split the answer into other tokens.

Special tokens are the template's to write. Where a message spells one out (`<|im_end|>` in a pasted
file) it is text about a token, not the token: nobody who is quoted can open a turn of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from models.errors import UserError

Role = Literal["system", "user", "assistant"]

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

    def render(
        self, messages: Sequence[Mapping[str, Any]], add_generation_prompt: bool = True
    ) -> str: ...


@dataclass(frozen=True, slots=True)
class Message:
    role: Role
    content: str


@dataclass(frozen=True, slots=True)
class Turn:
    """A conversation up to and including an answer.

    `messages` are what was said, without the instructions of single requests. `text` is the
    rendered prompt and the answer behind it, `ids` the tokens of both as the target saw them.
    """

    messages: tuple[Message, ...]
    text: str
    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Prompt:
    """What the target is to continue: `messages` as in `Turn`, `text` and its `ids`."""

    messages: tuple[Message, ...]
    text: str
    ids: tuple[int, ...]

    def answered(self, text: str, ids: Sequence[int]) -> Turn:
        return Turn(
            messages=(*self.messages, Message("assistant", text)),
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
) -> Prompt:
    """The prompt of `messages` behind `previous`, with `instructions` as its system message.

    Without a template (a base model) the texts are simply joined, special tokens in them are what
    they say. Raises `UserError`
    (`template_error`, or `missing_required_parameter` when there is nothing to continue).
    """
    said = (*(previous.messages if previous else ()), *messages)
    spoken = (Message("system", instructions), *said) if instructions else said
    text = _render(template, spoken, encoder.special_tokens)
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
    template: Template | None, messages: Sequence[Message], special_tokens: Sequence[str]
) -> str:
    if template is None:
        return "".join(message.content for message in messages)
    return template.render(
        [
            {"role": message.role, "content": _spelled_out(message.content, special_tokens)}
            for message in messages
        ]
    )
