"""Percentiles, and confidence intervals by bootstrap over prompts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

CONFIDENCE = 0.95
RESAMPLES = 4000
PERCENTILES = (5, 10, 25, 50, 75, 90, 95, 99)


def percentiles(values: Sequence[float], shares: Sequence[int] = PERCENTILES) -> list[float]:
    """Linear between neighbours, as numpy's. `values` has at least one."""
    found: list[float] = np.percentile(np.asarray(values), shares).tolist()
    return found


def ratio_of_means(pairs: Sequence[tuple[float, float]]) -> float:
    """Of the first ones over the second ones."""
    own, other = np.asarray(pairs, np.float64).T
    return float(own.mean() / other.mean())


def ratio_interval(
    pairs: Sequence[tuple[float, float]], seed: int, resamples: int = RESAMPLES
) -> tuple[float, float]:
    """Bounds of `ratio_of_means`, `CONFIDENCE` of its values over resampled pairs.

    Percentile bootstrap (Efron, 1979): a pair is a prompt, drawn as a whole, so that what makes a
    prompt slow in both settings cancels. `pairs` are at least two; the same seed gives the same
    bounds.
    """
    own, other = np.asarray(pairs, np.float64).T
    drawn = np.random.default_rng(seed).integers(0, len(own), (resamples, len(own)))
    ratios = own[drawn].sum(axis=1) / other[drawn].sum(axis=1)
    low, high = np.quantile(ratios, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]).tolist()
    return low, high


def median_interval(
    values: Sequence[float], seed: int, resamples: int = RESAMPLES
) -> tuple[float, float]:
    """Bounds of the median, `CONFIDENCE` of its values over resampled `values`, as above."""
    found = np.asarray(values, np.float64)
    drawn = np.random.default_rng(seed).integers(0, len(found), (resamples, len(found)))
    medians = np.median(found[drawn], axis=1)
    low, high = np.quantile(medians, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]).tolist()
    return low, high
