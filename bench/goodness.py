"""Pearson's chi-square test: how surprising counts are, given the probabilities."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

LEAST_EXPECTED = 5.0
"""Cells that expect fewer are pooled: below it the statistic is no longer chi-square."""

_ENOUGH = 1e-15
_MOST_STEPS = 100_000


def p_value(counts: NDArray[np.int64], probabilities: NDArray[np.float64]) -> float:
    """Of the counts having come from these probabilities; 0 where the impossible was counted."""
    counts, probabilities = counts.ravel(), probabilities.ravel()
    if counts[probabilities == 0].any():
        return 0.0
    expected = counts.sum() * probabilities
    cells, expectations = _pooled(counts, expected)
    statistic = float(((cells - expectations) ** 2 / expectations).sum())
    return survival(statistic, cells.size - 1)


def survival(statistic: float, freedom: int) -> float:
    """P(X > statistic) for X chi-square with `freedom` degrees: the regularised upper gamma."""
    if freedom == 0:
        return 1.0
    return _upper_gamma(freedom / 2, statistic / 2)


def _pooled(
    counts: NDArray[np.int64], expected: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """All rare cells as one, and that one with the next rarest while it is rare itself."""
    order = np.argsort(expected, kind="stable")
    rising = expected[order]
    mass = np.cumsum(rising)
    pooled = int(np.count_nonzero(rising < LEAST_EXPECTED))
    while 0 < pooled < rising.size and mass[pooled - 1] < LEAST_EXPECTED:
        pooled += 1
    first = np.array([0, *range(max(pooled, 1), rising.size)])
    return np.add.reduceat(counts[order].astype(np.float64), first), np.add.reduceat(rising, first)


def _upper_gamma(a: float, x: float) -> float:
    """Q(a, x): by the series of P(a, x) below a + 1, by the continued fraction above (Lentz)."""
    if x <= 0:
        return 1.0
    front = math.exp(a * math.log(x) - x - math.lgamma(a))
    if x < a + 1:
        term = total = 1 / a
        for step in range(1, _MOST_STEPS):
            term *= x / (a + step)
            total += term
            if term < total * _ENOUGH:
                break
        return max(0.0, 1 - front * total)
    b = x + 1 - a
    c, d = math.inf, 1 / b
    fraction = d
    for step in range(1, _MOST_STEPS):
        numerator = -step * (step - a)
        b += 2
        d = 1 / (numerator * d + b)
        c = b + numerator / c
        change = c * d
        fraction *= change
        if abs(change - 1) < _ENOUGH:
            break
    return front * fraction
