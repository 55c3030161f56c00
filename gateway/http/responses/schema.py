"""`response.create`: decoded JSON to a validated, typed request."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gateway.engine.conversation import Message
from gateway.http.fields import at_least, optional, short, typed
from gateway.http.responses.items import parse_input
from gateway.http.responses.limits import (
    check_limits,
    check_reasoning,
    check_text,
    check_tool_choice,
    parse_include,
)
from gateway.http.sampling import Decoding, parse_decoding, parse_top_logprobs
from gateway.settings import Settings
from models.errors import UserError

STREAM_ID = re.compile(r"[A-Za-z0-9_.-]{1,256}")
LOGPROBS = "message.output_text.logprobs"
PROVENANCE = "speculation"


@dataclass(frozen=True, slots=True)
class CreateResponse:
    """What a client asked for. Fields that only come back in the response are in `echo`.

    `top_logprobs` None: log-probabilities are not wanted.
    """

    messages: tuple[Message, ...]
    model: str | None
    instructions: str | None
    previous_response_id: str | None
    max_output_tokens: int | None
    store: bool
    stream: bool
    decoding: Decoding
    top_logprobs: int | None
    provenance: bool
    echo: Mapping[str, Any]


def parse_create(
    document: Mapping[str, Any], settings: Settings, api_key: str | None = None
) -> CreateResponse:
    """Raises `UserError` that names the field (`invalid_type`, `unsupported_value`, ...)."""
    check_limits(document)
    check_text(document)
    check_reasoning(document)
    included = parse_include(document, (LOGPROBS, PROVENANCE))
    store = optional(document, "store", bool)
    return CreateResponse(
        messages=parse_input(document),
        model=optional(document, "model", str),
        instructions=optional(document, "instructions", str),
        previous_response_id=optional(document, "previous_response_id", str),
        max_output_tokens=at_least(
            optional(document, "max_output_tokens", int), 1, "max_output_tokens"
        ),
        store=True if store is None else store,
        stream=optional(document, "stream", bool) or False,
        decoding=parse_decoding(document, settings, api_key),
        top_logprobs=_top_logprobs(document, LOGPROBS in included),
        provenance=PROVENANCE in included,
        echo=_echo(document),
    )


def parse_stream_id(document: Mapping[str, Any]) -> str | None:
    stream_id = optional(document, "stream_id", str)
    if stream_id is not None and not STREAM_ID.fullmatch(stream_id):
        raise UserError(
            "stream_id must be 1 to 256 of A-Z, a-z, 0-9, '_', '.', '-'.",
            code="invalid_value",
            param="stream_id",
        )
    return stream_id


def _top_logprobs(document: Mapping[str, Any], included: bool) -> int | None:
    """OpenAI tells them only where they are included; who asks for some wants to see them."""
    wanted = parse_top_logprobs(document)
    return wanted or (0 if included else None)


def _echo(document: Mapping[str, Any]) -> dict[str, Any]:
    """Fields without effect on this build that the response object repeats."""
    max_tool_calls = at_least(optional(document, "max_tool_calls", int), 1, "max_tool_calls")
    parallel = optional(document, "parallel_tool_calls", bool)
    return {
        "tool_choice": check_tool_choice(document),
        "parallel_tool_calls": True if parallel is None else parallel,
        "max_tool_calls": max_tool_calls,
        "metadata": _metadata(document),
        "safety_identifier": optional(document, "safety_identifier", str),
        "prompt_cache_key": optional(document, "prompt_cache_key", str),
    }


def _metadata(document: Mapping[str, Any]) -> dict[str, str]:
    metadata = optional(document, "metadata", dict)
    if metadata is None:
        return {}
    for key, value in metadata.items():
        typed(value, str, f"metadata.{short(key)}")
        if len(key) > 64 or len(value) > 512:
            raise UserError(
                "metadata keys have at most 64 characters and values at most 512.",
                code="invalid_value",
                param="metadata",
            )
    if len(metadata) > 16:
        raise UserError(
            f"metadata has {len(metadata)} entries; at most 16 are kept.",
            code="invalid_value",
            param="metadata",
        )
    return metadata
