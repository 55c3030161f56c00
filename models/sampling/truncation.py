"""Truncating a whole row: top-k and top-p in place, without sorting what need not be sorted."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_SORTED = 16_384
"""Up to this many weights are sorted at once."""

_SAMPLE, _MARGIN = 4096, 256
"""Of more, so many are sorted first; the cut of all is then looked for this far from theirs."""

_PEAKED = 128
"""Of a peaked row the nucleus is among the tokens as likely as so many of the sample: about 3 %."""

Weights = NDArray[np.float32]


def keep_top_k(weights: Weights, top_k: int) -> None:
    """Set all but the `top_k` largest to 0; of equal ones the lower ids stay."""
    place = weights.size - top_k
    _keep(weights, float(np.partition(weights, place)[place]), top_k)


def keep_top_p(weights: Weights, top_p: float) -> None:
    """Set all but the nucleus to 0: the tokens before which less than `top_p` of the mass lies."""
    total = float(weights.sum(dtype=np.float64))
    wanted = top_p * total
    count, least = _cut(_large(weights, wanted, total), wanted)
    _keep(weights, least, count)


def _large(weights: Weights, wanted: float, total: float) -> Weights:
    """Weights of which some largest reach the sum `wanted`: a few percent of a peaked row."""
    if weights.size > _SORTED:
        sample = np.sort(weights[:: weights.size // _SAMPLE])
        large = _at_least(weights, sample[-_PEAKED])
        if float(large.sum(dtype=np.float64)) >= wanted:
            return large
    # What is below this has less mass together than may be cut off, so the cut is above it.
    return _at_least(weights, (total - wanted) / weights.size)


def _at_least(weights: Weights, least: float) -> Weights:
    return np.compress(weights >= least, weights)


def _cut(weights: Weights, wanted: float) -> tuple[int, float]:
    """How many of the largest weights reach the sum `wanted`, and the least of these."""
    passed, rest = 0, weights
    if weights.size > _SORTED:
        upper, lower = _bracket(weights, wanted)
        above = weights > upper
        mass = float((weights * above).sum(dtype=np.float64))
        between = weights[~above & (weights >= lower)]
        if mass < wanted <= mass + float(between.sum(dtype=np.float64)):
            passed, wanted, rest = int(np.count_nonzero(above)), wanted - mass, between
    falling = np.sort(rest)[::-1]
    before = np.cumsum(falling, dtype=np.float64) - falling
    count = max(1, int(np.count_nonzero(before < wanted)))
    return passed + count, float(falling[count - 1])


def _bracket(weights: Weights, wanted: float) -> tuple[float, float]:
    """Two weights between which the cut probably lies, judged by every n-th one."""
    sample = np.sort(weights[:: weights.size // _SAMPLE])[::-1]
    mass = np.cumsum(sample, dtype=np.float64)
    share = wanted / float(weights.sum(dtype=np.float64))
    place = int(np.searchsorted(mass, share * float(mass[-1])))
    upper, lower = max(place - _MARGIN, 0), min(place + _MARGIN, sample.size - 1)
    return float(sample[upper]), float(sample[lower])


def _keep(weights: Weights, least: float, count: int) -> None:
    """Keep `count` weights: those above `least`, then the first that equal it."""
    kept = weights >= least
    spare = int(np.count_nonzero(kept)) - count
    if spare > 0:
        equal = np.flatnonzero(weights == least)
        kept[equal[equal.size - spare :]] = False
    weights *= kept
