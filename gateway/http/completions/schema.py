"""Decoded JSON to validated, typed requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from gateway.engine.conversation import Message
from gateway.http.completions.limits import CHAT_LIMITS, TEXT_LIMITS
from gateway.http.completions.messages import parse_messages
from gateway.http.fields import (
    MOST_ITEMS,
    few,
    in_range,
    invalid,
    missing,
    optional,
    typed,
    unsupported,
    wrong_type,
)
from gateway.http.foreign import IN_CHAT, IN_TEXT, refuse_foreign
from gateway.http.formats import parse_response_format
from gateway.http.responses.limits import check_limits
from gateway.http.sampling import LARGEST_ID, Decoding, parse_decoding, parse_top_logprobs
from gateway.http.sizes import bounded_tokens, require_small_schemas
from gateway.http.tools import ToolUse, parse_chat_tools
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
    """`effort` is what was said of thinking, None where nothing was."""

    messages: tuple[Message, ...]
    common: Common
    use: ToolUse
    effort: str | None


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
    limits = settings.limits
    require_small_schemas(document, limits)
    refuse_foreign(document, IN_CHAT)
    check_limits(document, CHAT_LIMITS)
    messages = parse_messages(document)
    max_tokens = bounded_tokens(document, "max_tokens", limits)
    if document.get("max_completion_tokens") is not None:
        max_tokens = bounded_tokens(document, "max_completion_tokens", limits)
    decoding = parse_decoding(document, settings, api_key)
    common = _common(document, decoding, max_tokens, _chat_logprobs(document))
    effort = optional(document, "reasoning_effort", str)
    return ChatRequest(messages, common, parse_chat_tools(document), effort)


def parse_text(
    document: Mapping[str, Any], settings: Settings, api_key: str | None = None
) -> TextRequest:
    """Raises `UserError` that names the field (`invalid_type`, `unsupported_value`, ...)."""
    require_small_schemas(document, settings.limits)
    refuse_foreign(document, IN_TEXT)
    check_limits(document, TEXT_LIMITS)
    prompts = parse_prompts(document.get("prompt"))
    echo = optional(document, "echo", bool) or False
    limit = bounded_tokens(document, "max_tokens", settings.limits, least=0)
    if limit == 0 and not echo:
        raise invalid("max_tokens", "must be at least 1 without echo, not 0")
    if document.get("max_tokens") is None:
        limit = TEXT_MAX_TOKENS if limit is None else min(limit, TEXT_MAX_TOKENS)
    logprobs = optional(document, "logprobs", int)
    if logprobs is not None:
        in_range(logprobs, 0, MOST_TEXT_LOGPROBS, "logprobs")
    decoding = parse_decoding(document, settings, api_key)
    common = _common(document, decoding, limit, logprobs)
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
    few(value, MOST_ITEMS, "prompt")
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
    return _ids(value, param)


def _ids(value: list[Any], param: str) -> tuple[int, ...]:
    # A request holds hundreds of thousands: one by one only to say which of them is wrong.
    if set(map(type, value)) == {int} and min(value) >= 0 and max(value) <= LARGEST_ID:
        return tuple(value)
    return tuple(
        in_range(typed(token, int, f"{param}[{index}]"), 0, LARGEST_ID, f"{param}[{index}]")
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
        decoding=replace(decoding, constraint=parse_response_format(document)),
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
