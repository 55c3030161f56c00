"""Lines that fit a terminal, broken between the values that they list and never inside of one."""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Iterable, Iterator, Sequence

PIPED_WIDTH = 100
_AFTER_A_VALUE = re.compile(r"(?<=[,;]) ")


def terminal_width() -> int:
    """COLUMNS, else that of the terminal, else `PIPED_WIDTH`."""
    return shutil.get_terminal_size((PIPED_WIDTH, 24)).columns


def listed(head: str, values: Sequence[str], width: int) -> list[str]:
    """`head`, and behind it the values, separated by commas, in a column of their own.

    A value that has no room in a line is broken where it is a list itself, otherwise it sticks out.
    """
    parted = [f"{value}," for value in values[:-1]] + list(values[-1:])
    room = width - len(head)
    pieces = (
        piece
        for value in parted
        for piece in ([value] if len(value) <= room else _AFTER_A_VALUE.split(value))
    )
    first, *rest = list(_filled(pieces, room)) or [""]
    return [(head + first).rstrip(), *(" " * len(head) + line for line in rest)]


def sentence(head: str, text: str, width: int) -> list[str]:
    """`head`, and behind it the words of `text`, none of which is broken."""
    return textwrap.wrap(
        text,
        width,
        initial_indent=head,
        subsequent_indent=" " * len(head),
        break_long_words=False,
        break_on_hyphens=False,
    )


def _filled(pieces: Iterable[str], room: int) -> Iterator[str]:
    line = ""
    for piece in pieces:
        if line and len(line) + 1 + len(piece) > room:
            yield line
            line = ""
        line = f"{line} {piece}" if line else piece
    if line:
        yield line
