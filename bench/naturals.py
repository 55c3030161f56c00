"""Numbers in command lines."""

from __future__ import annotations

import re

MOST = 10**9
_DIGITS = re.compile(r"0*([1-9][0-9]{0,9})")


def natural(text: str, most: int = MOST) -> int | None:
    """A number from 1 to `most`; None for any other text."""
    found = _DIGITS.fullmatch(text)
    number = int(found[1]) if found else 0
    return number if 1 <= number <= most else None
