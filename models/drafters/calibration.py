"""From a drafter's own probability of a token to how often the target agrees.

A head's probabilities are those of its training: sharper or flatter than its agreement with the
target in use. The curve between them is learnt from outcomes, for all requests together.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Sequence

_KNOTS = (0.01, 0.03, 0.07, 0.15, 0.25, 0.35, 0.45, 0.55, 0.65, 0.75, 0.85, 0.925, 0.97, 0.99)
"""Probabilities in whose neighbourhoods outcomes are counted."""

_EDGES = tuple((low + high) / 2 for low, high in itertools.pairwise(_KNOTS))
_PER_GAP = (1 / _KNOTS[0], *(1 / (high - low) for low, high in itertools.pairwise(_KNOTS)))
"""1 over what lies between a knot and the one below it."""

_PRIOR_OUTCOMES = 12.0
"""Until it has so many outcomes a neighbourhood is believed to be half what the head says."""

_KEPT = 1 - 1 / 2000
"""Older outcomes are forgotten: what is generated changes."""

_FRESH = 16
"""Outcomes after which estimates follow at the latest: to make them from outcomes takes a while."""

_DEPTHS = 4
_LEARNING_RATE = 0.02
_LEAST, _MOST = 0.002, 0.998


class Curve:
    """Acceptance by probability: rising, piecewise linear, and shifted by depth in log-odds."""

    def __init__(self, survival: Sequence[float] = ()) -> None:
        self._accepted = [_PRIOR_OUTCOMES * knot for knot in _KNOTS]
        self._outcomes = [_PRIOR_OUTCOMES] * len(_KNOTS)
        self._shifts = _shifts(survival)
        self._factors = [math.exp(shift) for shift in self._shifts]
        self._values = rising(self._accepted, self._outcomes)
        self._newer = 0

    def estimate(self, probability: float, depth: int = 0) -> float:
        """The probability that a token is accepted which the drafter gives `probability`, at
        `depth` (0 is the first of a draft), given that those before it are."""
        if self._newer:
            self._refresh()
        return self._known(probability, depth)

    def estimates(self, probabilities: Sequence[float]) -> tuple[float, ...]:
        """`estimate` of a whole draft, by depth."""
        if self._newer:
            self._refresh()
        known = self._known
        return tuple([known(probability, depth) for depth, probability in enumerate(probabilities)])

    def observe(self, probability: float, depth: int, accepted: bool) -> None:
        """The outcomes of a draft are compared with what was known before the first of them."""
        place, stage = bisect.bisect(_EDGES, probability), min(depth, _DEPTHS - 1)
        surprise = accepted - self._known(probability, depth)
        self._shifts[stage] += _LEARNING_RATE * surprise
        self._factors[stage] = math.exp(self._shifts[stage])
        self._accepted[place] = self._accepted[place] * _KEPT + accepted
        self._outcomes[place] = self._outcomes[place] * _KEPT + 1
        self._newer += 1
        if self._newer >= _FRESH:
            self._refresh()

    def _refresh(self) -> None:
        self._newer = 0  # first: another thread may observe meanwhile
        self._values = rising(self._accepted, self._outcomes)

    def _known(self, probability: float, depth: int) -> float:
        """Of every draft token: in one piece, since calls would be most of it."""
        values, above = self._values, bisect.bisect(_KNOTS, probability)
        if above == 0:
            value = values[0] * probability * _PER_GAP[0]
        elif above == len(_KNOTS):
            value = values[-1]
        else:
            low, high = values[above - 1], values[above]
            value = low + (high - low) * (probability - _KNOTS[above - 1]) * _PER_GAP[above]
        factor = self._factors[depth if depth < _DEPTHS else _DEPTHS - 1]
        if factor != 1.0:  # by which the odds change
            value = _LEAST if value < _LEAST else value if value < _MOST else _MOST
            value *= factor / (1.0 + value * (factor - 1.0))
        if value < _LEAST:
            return _LEAST
        return value if value < _MOST else _MOST


class Calibration:
    """The curves of one drafter, one for each way of drafting."""

    def __init__(self, survival: Sequence[float] = ()) -> None:
        self.greedy = Curve(survival)
        """The likeliest token, where the target's is the likeliest too."""
        self.likeliest = Curve(survival)
        """The likeliest token, where the target draws."""
        self.shared = Curve(survival)
        """A token drawn with the target's noise."""
        self.drawn = Curve(survival)
        """A token drawn with other noise."""
        self.greedy_sibling = Curve()
        """A token that is tried after others at the same place; the target's is the likeliest."""
        self.likeliest_sibling = Curve()
        """The same where the target draws."""


def rising(accepted: Sequence[float], outcomes: Sequence[float]) -> list[float]:
    """The shares accepted / outcomes, neighbours pooled until they do not fall."""
    shares = [hits / trials for hits, trials in zip(accepted, outcomes, strict=True)]
    if shares == sorted(shares):
        return shares
    blocks: list[tuple[float, float, int]] = []
    for hits, trials in zip(accepted, outcomes, strict=True):
        block = (hits, trials, 1)
        while blocks and blocks[-1][0] * block[1] >= block[0] * blocks[-1][1]:
            before = blocks.pop()
            block = (before[0] + block[0], before[1] + block[1], before[2] + block[2])
        blocks.append(block)
    return [hits / trials for hits, trials, count in blocks for _ in range(count)]


def _shifts(survival: Sequence[float]) -> list[float]:
    """What was measured at export: how the share accepted changes with depth, in log-odds."""
    shares = [
        min(_MOST, max(_LEAST, now / before)) if before > 0 else _LEAST
        for before, now in zip((1.0, *survival), survival, strict=False)
    ][:_DEPTHS]
    if not shares:
        return [0.0] * _DEPTHS
    odds = [math.log(share / (1 - share)) for share in shares]
    shifts = [value - odds[0] for value in odds]
    return shifts + [shifts[-1]] * (_DEPTHS - len(shifts))
