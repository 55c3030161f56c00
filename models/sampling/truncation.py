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
    total = _mass(weights)
    wanted = top_p * total
    if weights.size <= _SORTED:
        count, least = _cut(weights, wanted)
    else:
        count, least = _cut_by_sample(weights, wanted, total)
    _keep(weights, least, count)


def _cut(weights: Weights, wanted: float) -> tuple[int, float]:
    """How many of the largest weights reach the sum `wanted`, and the least of these."""
    falling = np.sort(weights)[::-1]
    before = np.cumsum(falling, dtype=np.float64) - falling
    count = max(1, int(np.count_nonzero(before < wanted)))
    return count, float(falling[count - 1])


def _cut_by_sample(weights: Weights, wanted: float, total: float) -> tuple[int, float]:
    """The same, where every n-th weight tells which few must be sorted; if it errs, all are."""
    sample = np.sort(weights[:: weights.size // _SAMPLE])[::-1]
    large = np.compress(weights >= sample[_PEAKED], weights)
    if _mass(large) >= wanted:
        return _cut(large, wanted)
    upper, lower = _bracket(sample, wanted / total)
    above = weights > upper
    passed = _mass(weights * above)
    between = np.compress(~above & (weights >= lower), weights)
    if passed < wanted <= passed + _mass(between):
        count, least = _cut(between, wanted - passed)
        return int(np.count_nonzero(above)) + count, least
    return _cut(weights, wanted)


def _bracket(falling: Weights, share: float) -> tuple[float, float]:
    """Two weights between which the cut at this share of the mass probably lies."""
    mass = np.cumsum(falling, dtype=np.float64)
    place = int(np.searchsorted(mass, share * float(mass[-1])))
    upper, lower = max(place - _MARGIN, 0), min(place + _MARGIN, falling.size - 1)
    return float(falling[upper]), float(falling[lower])


def _mass(weights: Weights) -> float:
    return float(np.add.reduce(weights, dtype=np.float64))


def _keep(weights: Weights, least: float, count: int) -> None:
    """Keep `count` weights: those above `least`, then the first that equal it."""
    kept = weights >= least
    spare = int(np.count_nonzero(kept)) - count
    if spare > 0:
        equal = np.flatnonzero(weights == least)
        kept[equal[equal.size - spare :]] = False
    weights *= kept
