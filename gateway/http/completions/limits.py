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
        "audio": _ABSENT,
        "modalities": Limit(
            list, lambda value: value == ["text"], f'["text"] or absent (others are {NOT_YET})'
        ),
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
