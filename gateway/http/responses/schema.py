"""`response.create`: decoded JSON to a validated, typed request."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from gateway.engine.conversation import Message
from gateway.http.fields import at_least, optional, short, typed
from gateway.http.foreign import IN_RESPONSES, refuse_foreign
from gateway.http.formats import parse_text
from gateway.http.responses.items import parse_input
from gateway.http.responses.limits import (
    check_limits,
    parse_effort,
    parse_include,
)
from gateway.http.sampling import Decoding, parse_decoding, parse_top_logprobs
from gateway.http.sizes import bounded_tokens, require_small_schemas
from gateway.http.tools import ToolUse, parse_tools
from gateway.settings import Settings
from models.errors import UserError

STREAM_ID = re.compile(r"[A-Za-z0-9_.-]{1,256}")
LOGPROBS = "message.output_text.logprobs"
PROVENANCE = "speculation"


@dataclass(frozen=True, slots=True)
class CreateResponse:
    """What a client asked for. What comes back in the response as it was sent is in `echo`.

    Without `generate` the prompt is read and nothing is said. `top_logprobs` None:
    log-probabilities are not wanted. `effort` is what was said of thinking.
    """

    messages: tuple[Message, ...]
    model: str | None
    instructions: str | None
    previous_response_id: str | None
    max_output_tokens: int | None
    store: bool
    stream: bool
    background: bool
    generate: bool
    decoding: Decoding
    top_logprobs: int | None
    provenance: bool
    use: ToolUse
    effort: str | None
    echo: Mapping[str, Any]


def parse_create(
    document: Mapping[str, Any], settings: Settings, api_key: str | None = None
) -> CreateResponse:
    """Raises `UserError` that names the field (`invalid_type`, `unsupported_value`, ...)."""
    require_small_schemas(document, settings.limits)
    refuse_foreign(document, IN_RESPONSES)
    check_limits(document)
    form = parse_text(document)
    use, effort = parse_tools(document), parse_effort(document)
    included = parse_include(document, (LOGPROBS, PROVENANCE))
    store = optional(document, "store", bool)
    return CreateResponse(
        messages=parse_input(document),
        model=optional(document, "model", str),
        instructions=optional(document, "instructions", str),
        previous_response_id=optional(document, "previous_response_id", str),
        max_output_tokens=bounded_tokens(document, "max_output_tokens", settings.limits),
        store=True if store is None else store,
        stream=optional(document, "stream", bool) or False,
        background=_background(document, store),
        generate=optional(document, "generate", bool) is not False,
        decoding=replace(parse_decoding(document, settings, api_key), constraint=form.constraint),
        top_logprobs=_top_logprobs(document, LOGPROBS in included),
        provenance=PROVENANCE in included,
        use=use,
        effort=effort,
        echo={**_echo(document), **use.echo, "text": {"format": form.echo}},
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


def _background(document: Mapping[str, Any], store: bool | None) -> bool:
    """Who goes on without a reader is read later, and so is stored."""
    background = optional(document, "background", bool) or False
    if background and store is False:
        raise UserError(
            "background is true and store is false; a response that goes on without a reader is"
            " read later: leave store out or true, or background out or false.",
            code="unsupported_value",
            param="background",
        )
    return background


def _top_logprobs(document: Mapping[str, Any], included: bool) -> int | None:
    """OpenAI tells them only where they are included; who asks for some wants to see them."""
    wanted = parse_top_logprobs(document)
    return wanted or (0 if included else None)


def _echo(document: Mapping[str, Any]) -> dict[str, Any]:
    """Fields without effect on this build that the response object repeats."""
    max_tool_calls = at_least(optional(document, "max_tool_calls", int), 1, "max_tool_calls")
    return {
        "max_tool_calls": max_tool_calls,
        "metadata": _metadata(document),
        "safety_identifier": optional(document, "safety_identifier", str),
        "prompt_cache_key": optional(document, "prompt_cache_key", str),
    }


def _metadata(document: Mapping[str, Any]) -> dict[str, str]:
    metadata = optional(document, "metadata", dict)
    if metadata is None:
        return {}
    if len(metadata) > 16:
        raise UserError(
            f"metadata has {len(metadata)} entries; at most 16 are kept.",
            code="invalid_value",
            param="metadata",
        )
    for key, value in metadata.items():
        typed(value, str, f"metadata.{short(key)}")
        if len(key) > 64 or len(value) > 512:
            raise UserError(
                "metadata keys have at most 64 characters and values at most 512.",
                code="invalid_value",
                param="metadata",
            )
    return metadata
