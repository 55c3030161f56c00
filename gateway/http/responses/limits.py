"""Known fields that this build can honour only for some of their values.

A field outside this table and outside `schema` is tolerated; a value that would silently be
ignored is refused, naming the field and what is accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from gateway.http.fields import MOST_ITEMS, few, optional, typed, unsupported


@dataclass(frozen=True, slots=True)
class Limit:
    """`kind` of the field and which of its values are honoured (null always is)."""

    kind: type
    honoured: Callable[[Any], bool]
    accepted: str


def _is(*values: Any) -> Callable[[Any], bool]:
    return lambda value: value in values


def _empty(value: Any) -> bool:
    return not value


def _never(value: Any) -> bool:
    return False


LIMITS: Mapping[str, Limit] = MappingProxyType(
    {
        "truncation": Limit(str, _is("disabled"), '"disabled" or absent'),
        "conversation": Limit(object, _never, "absent (use previous_response_id)"),
        "prompt": Limit(object, _never, "absent"),
        "moderation": Limit(object, _never, "absent"),
        "context_management": Limit(list, _empty, "an empty array or absent"),
        "service_tier": Limit(str, _is("auto", "default"), '"auto", "default" or absent'),
    }
)
TEXT_LIMITS: Mapping[str, Limit] = MappingProxyType(
    {"verbosity": Limit(str, _is("medium"), '"medium" or absent')}
)
REASONING_LIMITS: Mapping[str, Limit] = MappingProxyType(
    {
        "summary": Limit(str, _never, "absent (thoughts are told as they are)"),
        "generate_summary": Limit(str, _never, "absent (thoughts are told as they are)"),
    }
)
# Without such tools these have nothing to add; what would have to be computed is refused.
IDLE_INCLUDES = frozenset(
    {
        "code_interpreter_call.outputs",
        "computer_call_output.output.image_url",
        "file_search_call.results",
        "message.input_image.image_url",
        "reasoning.encrypted_content",
        "web_search_call.action.sources",
        "web_search_call.results",
    }
)


def check_limits(
    document: Mapping[str, Any], limits: Mapping[str, Limit] = LIMITS, prefix: str = ""
) -> None:
    """Raises `UserError` `invalid_type` or `unsupported_value` for the first field refused."""
    for name, limit in limits.items():
        value = document.get(name)
        if value is None:
            continue
        if limit.kind is not object:
            typed(value, limit.kind, prefix + name)
        if not limit.honoured(value):
            raise unsupported(prefix + name, value, limit.accepted)


def parse_effort(document: Mapping[str, Any]) -> str | None:
    """What `reasoning` says of thinking; whether the model can is another matter."""
    reasoning = document.get("reasoning")
    if reasoning is None:
        return None
    check_limits(typed(reasoning, dict, "reasoning"), REASONING_LIMITS, "reasoning.")
    return optional(reasoning, "effort", str, "reasoning.")


def parse_include(document: Mapping[str, Any], honoured: Collection[str]) -> frozenset[str]:
    """Those of `honoured` that `include` names."""
    include = optional(document, "include", list) or []
    few(include, MOST_ITEMS, "include")
    known = IDLE_INCLUDES.union(honoured)
    for index, value in enumerate(include):
        param = f"include[{index}]"
        if typed(value, str, param) not in known:
            raise unsupported(param, value, " and ".join(map(repr, honoured)))
    return frozenset(include).intersection(honoured)
