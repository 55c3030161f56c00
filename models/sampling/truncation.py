"""Truncating a whole row: top-k and top-p in place, without sorting what need not be sorted."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_SORTED = 4096
"""Up to this many weights are sorted; more are counted into bins first."""

_BIN_BITS = 16
"""Bits of a float32 that do not tell its bin: a bin spans 1/128 of its values' size."""

Weights = NDArray[np.float32]


def keep_top_k(weights: Weights, top_k: int) -> None:
    """Set all but the `top_k` largest to 0; of equal ones the lower ids stay."""
    place = weights.size - top_k
    _keep(weights, float(np.partition(weights, place)[place]), top_k)


def keep_top_p(weights: Weights, top_p: float) -> None:
    """Set all but the nucleus to 0: the tokens before which less than `top_p` of the mass lies."""
    total = float(weights.sum(dtype=np.float64))
    wanted = top_p * total
    # What is below this has less mass together than may be cut off, so the cut is above it.
    negligible = (1 - top_p) * total / weights.size
    large = weights[weights >= negligible]
    if large.size <= _SORTED:
        passed, rest = 0, large
    else:
        passed, wanted, rest = _above_cut(large, wanted)
    falling = np.sort(rest)[::-1]
    before = np.cumsum(falling, dtype=np.float64) - falling
    count = max(1, int(np.count_nonzero(before < wanted)))
    _keep(weights, float(falling[count - 1]), passed + count)


def _above_cut(weights: Weights, wanted: float) -> tuple[int, float, Weights]:
    """The bin in which the largest weights reach the sum `wanted`.

    Returns how many weights are in higher bins, what of `wanted` is left for the bin, and its
    weights. Positive floats are ordered as their bits are.
    """
    bins = weights.view(np.int32) >> _BIN_BITS
    bins -= bins.min()
    mass = np.bincount(bins, weights=weights)[::-1].cumsum()
    place = min(int(np.searchsorted(mass, wanted)), mass.size - 1)
    cut = mass.size - 1 - place
    left = wanted - (float(mass[place - 1]) if place else 0.0)
    return int(np.count_nonzero(bins > cut)), left, weights[bins == cut]


def _keep(weights: Weights, least: float, count: int) -> None:
    """Keep `count` weights: those above `least`, then the first that equal it."""
    kept = weights >= least
    spare = int(np.count_nonzero(kept)) - count
    if spare > 0:
        equal = np.flatnonzero(weights == least)
        kept[equal[equal.size - spare :]] = False
    weights *= kept
