"""The `timings` of an answer as every endpoint writes them."""

from __future__ import annotations

import dataclasses
from typing import Any

from gateway.engine.requests import Timings

MILLISECOND_DIGITS = 3
RATIO_DIGITS = 4


def timings_object(timings: Timings) -> dict[str, Any]:
    """Rounded: more digits than these are no measurement."""
    written = dataclasses.asdict(timings)
    return {name: rounded(name, value) for name, value in written.items()}


def rounded(name: str, value: Any) -> Any:
    """`value` as the field `name` writes it."""
    if not isinstance(value, float):
        return value
    return round(value, MILLISECOND_DIGITS if name.endswith("ms") else RATIO_DIGITS)
