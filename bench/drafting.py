"""Draft lengths as command lines name them: `0` is off, `auto` adapts, N is fixed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from models.errors import UserError

OFF = "off"
AUTO = "auto"
_LONGEST = 31


@dataclass(frozen=True, slots=True)
class Drafting:
    """A named way of drafting, as the wire's `speculation` object says it."""

    name: str
    wire: Mapping[str, Any]


def drafting(text: str) -> Drafting:
    if text in ("0", OFF):
        return Drafting(OFF, {"policy": "off"})
    if text == AUTO:
        return Drafting(AUTO, {"policy": "auto"})
    if not text.isdecimal() or not 1 <= int(text) <= _LONGEST:
        raise UserError(
            f"--lengths has {text!r}; known are 0 (off), auto, and 1 to {_LONGEST}.",
            code="usage",
            param="lengths",
        )
    return Drafting(f"{int(text)}", {"policy": "fixed", "length": int(text)})


def parse_lengths(text: str) -> list[Drafting]:
    """Raises `UserError` for an unknown or repeated length, and where `0` is missing."""
    settings = [drafting(part.strip()) for part in text.split(",")]
    names = [setting.name for setting in settings]
    if len(set(names)) < len(names):
        raise UserError("--lengths names a length twice.", code="usage", param="lengths")
    if OFF not in names:
        raise UserError(
            "--lengths needs 0: everything is compared with speculation off.",
            code="usage",
            param="lengths",
        )
    return settings
