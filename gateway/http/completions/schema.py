"""Decoded JSON to validated, typed requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gateway.engine.conversation import Message
from gateway.http.completions.limits import CHAT_LIMITS, TEXT_LIMITS
from gateway.http.completions.messages import parse_messages
from gateway.http.fields import (
    at_least,
    in_range,
    invalid,
    missing,
    optional,
    typed,
    unsupported,
    wrong_type,
)
from gateway.http.responses.limits import check_limits
from gateway.http.sampling import Decoding, parse_decoding, parse_top_logprobs
from gateway.settings import Settings

MOST_CHOICES = 8
MOST_TEXT_LOGPROBS = 5
TEXT_MAX_TOKENS = 16

PromptText = str | tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Common:
    """What both endpoints are asked for.

    `top_logprobs` None asks for no log-probabilities. `include_usage` is that of a stream: a last
    chunk with the usage of all choices.
    """

    model: str | None
    n: int
    max_tokens: int | None
    decoding: Decoding
    top_logprobs: int | None
    stream: bool
    include_usage: bool

    @property
    def logprobs(self) -> bool:
        return self.top_logprobs is not None


@dataclass(frozen=True, slots=True)
class ChatRequest:
    messages: tuple[Message, ...]
    common: Common


@dataclass(frozen=True, slots=True)
class TextRequest:
    """`prompts` are texts, or the ids themselves. With `echo` each is the beginning of its
    choices' text."""

    prompts: tuple[PromptText, ...]
    echo: bool
    common: Common


def parse_chat(
    document: Mapping[str, Any], settings: Settings, api_key: str | None = None
) -> ChatRequest:
    """Raises `UserError` that names the field (`invalid_type`, `unsupported_value`, ...)."""
    check_limits(document, CHAT_LIMITS)
    messages = parse_messages(document)
    limit = at_least(optional(document, "max_tokens", int), 1, "max_tokens")
    newer = at_least(optional(document, "max_completion_tokens", int), 1, "max_completion_tokens")
    max_tokens = limit if newer is None else newer
    decoding = parse_decoding(document, settings, api_key)
    common = _common(document, decoding, max_tokens, _chat_logprobs(document))
    return ChatRequest(messages, common)


def parse_text(
    document: Mapping[str, Any], settings: Settings, api_key: str | None = None
) -> TextRequest:
    """Raises `UserError` that names the field (`invalid_type`, `unsupported_value`, ...)."""
    check_limits(document, TEXT_LIMITS)
    prompts = parse_prompts(document.get("prompt"))
    echo = optional(document, "echo", bool) or False
    limit = at_least(optional(document, "max_tokens", int), 0, "max_tokens")
    if limit == 0 and not echo:
        raise invalid("max_tokens", "must be at least 1 without echo, not 0")
    max_tokens = TEXT_MAX_TOKENS if limit is None else limit
    logprobs = optional(document, "logprobs", int)
    if logprobs is not None:
        in_range(logprobs, 0, MOST_TEXT_LOGPROBS, "logprobs")
    decoding = parse_decoding(document, settings, api_key)
    common = _common(document, decoding, max_tokens, logprobs)
    best_of = optional(document, "best_of", int)
    if best_of not in (None, 1, common.n):
        raise unsupported("best_of", best_of, "1, the same as n, or absent")
    return TextRequest(prompts, echo, common)


def parse_prompts(value: Any) -> tuple[PromptText, ...]:
    """A text, the ids of one, or an array of either: never empty."""
    if value is None:
        raise missing("prompt")
    if not isinstance(value, list):
        return (_prompt(value, "prompt", "a string or an array"),)
    if not value:
        raise missing("prompt")
    if _is_id(value[0]):
        return (_prompt(value, "prompt", "a string or an array"),)
    return tuple(
        _prompt(item, f"prompt[{index}]", "a string or an array of token ids")
        for index, item in enumerate(value)
    )


def _prompt(value: Any, param: str, expected: str) -> PromptText:
    if not isinstance(value, str | list):
        raise wrong_type(param, expected, value)
    if not value:
        raise invalid(param, "is empty: there is nothing to continue")
    if isinstance(value, str):
        return value
    return tuple(
        in_range(typed(token, int, f"{param}[{index}]"), 0, (1 << 31) - 1, f"{param}[{index}]")
        for index, token in enumerate(value)
    )


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _common(
    document: Mapping[str, Any],
    decoding: Decoding,
    max_tokens: int | None,
    top_logprobs: int | None,
) -> Common:
    n = optional(document, "n", int)
    options = optional(document, "stream_options", dict) or {}
    return Common(
        model=optional(document, "model", str),
        n=1 if n is None else in_range(n, 1, MOST_CHOICES, "n"),
        max_tokens=max_tokens,
        decoding=decoding,
        top_logprobs=top_logprobs,
        stream=optional(document, "stream", bool) or False,
        include_usage=optional(options, "include_usage", bool, "stream_options.") or False,
    )


def _chat_logprobs(document: Mapping[str, Any]) -> int | None:
    wanted = optional(document, "logprobs", bool) or False
    top = parse_top_logprobs(document)
    if not wanted:
        if top:
            raise invalid("top_logprobs", "needs logprobs to be true")
        return None
    return top or 0
