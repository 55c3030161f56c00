"""Numbers in a row, from tables: to compute a few of them takes longer than to look them up."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Whole = TypeVar("Whole", np.int32, np.int64)

_tables: dict[type[np.integer], NDArray[np.integer]] = {}


def numbers(start: int, end: int, kind: type[Whole]) -> NDArray[Whole]:
    """`start`, ..., `end` - 1; not to be written to."""
    table = _tables.get(kind)
    if table is None or len(table) < end:
        table = np.arange(max(1024, 2 * end), dtype=kind)
        table.flags.writeable = False
        _tables[kind] = table
    return table[start:end]  # type: ignore[return-value]
