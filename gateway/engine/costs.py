"""What a target run costs by width: measured at start-up, corrected by every run."""

from __future__ import annotations

import bisect
from collections.abc import Mapping

CALIBRATION_WIDTHS = (2, 3, 4, 6, 8, 12, 16, 24, 32)

_CORRECTION = 0.05
"""Weight of one run in the running correction."""

_OBLIVION = 0.002
"""What each chain run takes off the surcharge of trees, so that they are tried again in time."""


class RunCosts:
    """Milliseconds of a target run by its packed width, linear between measured widths.

    The curve's shape is the calibration's; `observe` scales it, since a longer context or a
    busier machine makes all widths dearer. Ratios of two widths are what decisions use. A run
    that verifies a tree pays a surcharge, known from such runs alone.
    """

    def __init__(self, measured: Mapping[int, float]) -> None:
        self._widths = sorted(measured)
        # Noise must not make a wider run look cheaper than a narrower one.
        self._costs: list[float] = []
        for width in self._widths:
            self._costs.append(max(measured[width], self._costs[-1] if self._costs else 0.0))
        self._scale = 1.0
        self._surcharge = 1.0

    def predict(self, width: int, tree: bool = False) -> float:
        """Expected milliseconds of a run of `width` tokens; `tree`: not all rows are chains."""
        cost = self._shape(width) * self._scale
        return cost * max(1.0, self._surcharge) if tree else cost

    def observe(self, width: int, milliseconds: float, tree: bool = False) -> None:
        """Correct the curve, or the surcharge of trees, by a run that took `milliseconds`."""
        if width > self._widths[-1]:
            return  # a prefill chunk rode along
        ratio = milliseconds / self._shape(width)
        if tree:
            self._surcharge += _CORRECTION * (min(ratio / self._scale, 4.0) - self._surcharge)
            return
        self._scale += _CORRECTION * (min(ratio, 4.0) - self._scale)
        self._surcharge += _OBLIVION * (1.0 - self._surcharge)

    def table(self) -> dict[int, float]:
        """The curve in force."""
        return {width: self.predict(width) for width in self._widths}

    def _shape(self, width: int) -> float:
        widths, costs = self._widths, self._costs
        at = min(max(bisect.bisect_left(widths, width), 1), len(widths) - 1)
        low, high = at - 1, at
        if width <= widths[0]:
            return costs[0]
        slope = (costs[high] - costs[low]) / (widths[high] - widths[low])
        return costs[low] + slope * (width - widths[low])
