"""What a drafter's run costs by its length: measured at load, corrected by every run."""

from __future__ import annotations

import bisect
from collections.abc import Mapping

_CORRECTION = 0.05
"""Weight of one run in the running correction."""

_OFF, _AGAIN, _SLOWER, _FASTER = 1.5, 1.2, 0.5, 0.8
"""Weights of a run that took so many times more or less than expected, once or twice in a row: a
drafter that became slow costs more with every round, and one that was only held up is as quick to
be believed again."""

_WORST = 16.0
"""How many times what was expected a run counts for at most."""

_LISTED = 33
"""Proposals of fewer tokens are looked up: a decision asks for all of them."""


class DraftCosts:
    """Milliseconds of a proposal by its budget, linear between those that were measured.

    Every run scales the whole curve. Without a calibration a first run is the curve.
    """

    def __init__(self, measured: Mapping[int, float] | None = None) -> None:
        self._costs = dict(measured or {})
        self._scale = 1.0
        self._last = 1.0
        self._listed = self._list()

    def predict(self, budget: int) -> float:
        """Expected milliseconds of a proposal of `budget` tokens; 0 where none was ever made."""
        shape = self._listed[budget] if budget < _LISTED else self._shape(budget)
        return self._scale * shape

    def up_to(self, most: int) -> list[float]:
        """`predict` of 0 to `most` tokens."""
        if most >= _LISTED:
            return [self.predict(budget) for budget in range(most + 1)]
        scale = self._scale
        return [scale * ms for ms in self._listed[: most + 1]]

    def observe(self, budget: int, milliseconds: float) -> None:
        expected = self.predict(budget)
        if expected <= 0:
            self._costs[budget] = milliseconds
            self._listed = self._list()
            return
        ratio = min(milliseconds / expected, _WORST)
        self._scale *= 1 + self._weight(ratio) * (ratio - 1)
        self._last = ratio

    def _weight(self, ratio: float) -> float:
        if ratio > 1:
            sudden = max(ratio / _OFF, min(ratio, self._last) / _AGAIN) > 1
            return _SLOWER if sudden else _CORRECTION
        sudden = min(ratio * _OFF, max(ratio, self._last) * _AGAIN) < 1
        return _FASTER if sudden else _CORRECTION

    def table(self) -> dict[int, float]:
        """The curve in force."""
        return {budget: self.predict(budget) for budget in sorted(self._costs)}

    def _list(self) -> list[float]:
        return [self._shape(budget) for budget in range(_LISTED)]

    def _shape(self, budget: int) -> float:
        known = sorted(self._costs)
        if not known:
            return 0.0
        if len(known) == 1 or budget <= known[0]:
            # A token less may spare a share of the run, but never the call.
            return self._costs[known[0]]
        at = min(bisect.bisect_left(known, budget), len(known) - 1)
        low, high = known[at - 1], known[at]
        slope = (self._costs[high] - self._costs[low]) / (high - low)
        return max(self._costs[low] + slope * (budget - low), 0.0)
