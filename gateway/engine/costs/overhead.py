"""What a round takes beside its runs: deciding, accepting, handing over."""

from __future__ import annotations

_WEIGHT = 0.05
"""Weight of one round in the running mean."""


class RoundOverhead:
    """Milliseconds of host work a round, of streams that were alone; plain and drafted rounds pay
    it alike. 0 until a round was seen."""

    def __init__(self) -> None:
        self.ms = 0.0
        self._rounds = 0

    def observe(self, milliseconds: float) -> None:
        """The mean of the first rounds, then a running one."""
        self._rounds += 1
        worst = milliseconds if self._rounds == 1 else min(milliseconds, 4 * self.ms)
        self.ms += max(_WEIGHT, 1 / self._rounds) * (max(0.0, worst) - self.ms)
