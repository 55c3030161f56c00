"""`response.create`: decoded JSON to a validated, typed request."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, get_args

from gateway.engine.conversation import Message
from gateway.engine.requests import Policy, Speculation
from gateway.http.fields import (
    at_least,
    missing,
    one_of,
    only_known,
    optional,
    typed,
    unsupported,
)
from gateway.http.responses.items import parse_input
from gateway.http.responses.limits import (
    check_include,
    check_limits,
    check_reasoning,
    check_text,
    check_tool_choice,
)
from gateway.settings import DRAFTERS, MAX_DRAFT_LENGTH
from models.errors import UserError

STREAM_ID = re.compile(r"[A-Za-z0-9_.-]{1,256}")
POLICIES: tuple[str, ...] = get_args(Policy)
RULES = ("coupled",)


@dataclass(frozen=True, slots=True)
class CreateResponse:
    """What a client asked for. Fields that only come back in the response are in `echo`."""

    messages: tuple[Message, ...]
    model: str | None
    instructions: str | None
    previous_response_id: str | None
    max_output_tokens: int | None
    store: bool
    stream: bool
    speculation: Speculation
    provenance: bool
    echo: Mapping[str, Any]


def parse_create(document: Mapping[str, Any], defaults: Speculation) -> CreateResponse:
    """Raises `UserError` that names the field (`invalid_type`, `unsupported_value`, ...)."""
    check_limits(document)
    check_text(document)
    check_reasoning(document)
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
        speculation=parse_speculation(document.get("speculation"), defaults),
        provenance=check_include(document),
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


def parse_speculation(value: Any, defaults: Speculation) -> Speculation:
    """The `speculation` extension: what it names replaces the gateway's defaults."""
    if value is None:
        return defaults
    typed(value, dict, "speculation")
    only_known(value, ("drafter", "length", "policy", "rule", "off"), "speculation")
    prefix = "speculation."
    drafter = optional(value, "drafter", str, prefix)
    length = at_least(optional(value, "length", int, prefix), 1, "speculation.length")
    rule = optional(value, "rule", str, prefix)
    if drafter is not None:
        one_of(drafter, DRAFTERS, "speculation.drafter")
    if length is not None and length > MAX_DRAFT_LENGTH:
        raise unsupported("speculation.length", length, f"1 to {MAX_DRAFT_LENGTH}")
    if rule is not None:
        one_of(rule, RULES, "speculation.rule")
    changed = replace(
        defaults,
        drafter=drafter or defaults.drafter,
        length=defaults.length if length is None else length,
        policy=_policy(value, defaults.policy),
    )
    if changed.policy == "fixed" and changed.length is None:
        raise missing("speculation.length")
    return changed


def _policy(value: Mapping[str, Any], default: Policy) -> Policy:
    policy = optional(value, "policy", str, "speculation.")
    off = optional(value, "off", bool, "speculation.")
    if policy is not None:
        one_of(policy, POLICIES, "speculation.policy")
    if off is True:
        if policy not in (None, "off"):
            raise unsupported("speculation.off", True, f"false beside policy {policy!r}")
        return "off"
    if off is False:
        if policy == "off":
            raise unsupported("speculation.off", False, "true or absent beside policy 'off'")
        if policy is None and default == "off":
            return "auto"
    known: dict[str, Policy] = {"auto": "auto", "fixed": "fixed", "off": "off"}
    return default if policy is None else known[policy]


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
        typed(value, str, f"metadata.{key}")
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
