"""How wide a run may get, where more than that costs a jump or breaks a promise."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RunLimits:
    """`row` is the most tokens of one row, `run` those of all rows together; None: no end.

    The graph for a number of rows is that of the next power of two, and on a device its rows are
    all as wide as the widest.
    """

    row: int | None = None
    run: int | None = None

    def draft(self, rows: int) -> int | None:
        """The most draft tokens of a row among `rows` rows; None: as many as may be."""
        ends = [] if self.row is None else [self.row]
        if self.run is not None:
            ends.append(self.run // (1 << math.ceil(math.log2(rows))))
        return max(0, min(ends) - 1) if ends else None


UNLIMITED = RunLimits()
