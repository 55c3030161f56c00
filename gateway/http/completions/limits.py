"""Known fields that this build can honour only for some of their values."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from gateway.http.responses.limits import Limit

NOT_YET = "not supported by this version"


def _never(value: Any) -> bool:
    return False


def _empty(value: Any) -> bool:
    return not value


def _no_choice(value: Any) -> bool:
    return value in ("none", "auto")


_FUNCTIONS = Limit(list, _empty, f"an empty array or absent (use tools; it is {NOT_YET})")
_CHOICE = Limit(object, _no_choice, f'"none", "auto" or absent (use tool_choice; it is {NOT_YET})')
_ABSENT = Limit(object, _never, f"absent (it is {NOT_YET})")
_EVERYWHERE: Mapping[str, Limit] = MappingProxyType(
    {
        "service_tier": Limit(
            str, lambda value: value in ("auto", "default"), '"auto", "default" or absent'
        ),
    }
)
CHAT_LIMITS: Mapping[str, Limit] = MappingProxyType(
    {
        **_EVERYWHERE,
        "functions": _FUNCTIONS,
        "function_call": _CHOICE,
        "audio": _ABSENT,
        "modalities": Limit(
            list, lambda value: value == ["text"], f'["text"] or absent (others are {NOT_YET})'
        ),
        "prediction": _ABSENT,
        "web_search_options": _ABSENT,
        "moderation": _ABSENT,
        "verbosity": Limit(str, lambda value: value == "medium", '"medium" or absent'),
    }
)
TEXT_LIMITS: Mapping[str, Limit] = MappingProxyType(
    {
        **_EVERYWHERE,
        "suffix": Limit(str, _empty, f"absent (inserting is {NOT_YET})"),
    }
)
