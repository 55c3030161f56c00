"""The content of a message: a string, or an array of text parts."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from gateway.http.fields import (
    MOST_ITEMS,
    few,
    missing,
    required,
    typed,
    unsupported,
    wrong_type,
)


def text_content(value: Any, param: str, kinds: Collection[str], accepted: str) -> str:
    """The text of `value`, whose parts may be of these `kinds`; `accepted` names them in words.

    Raises `UserError` that names the part.
    """
    if isinstance(value, str):
        return value
    if value is None:
        raise missing(param)
    if not isinstance(value, list):
        raise wrong_type(param, "a string or an array", value)
    few(value, MOST_ITEMS, param)
    return "".join(
        _part(part, f"{param}[{index}]", kinds, accepted) for index, part in enumerate(value)
    )


def _part(part: Any, param: str, kinds: Collection[str], accepted: str) -> str:
    typed(part, dict, param)
    kind = required(part, "type", str, f"{param}.")
    if kind not in kinds:
        raise unsupported(f"{param}.type", kind, accepted)
    return required(part, "text", str, f"{param}.")
