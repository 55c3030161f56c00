"""From a row of logits to the distribution of the next token.

In this order: penalties and bias (`history`), the tokens that a constraint allows, temperature,
top-k, top-p, min-p. Each step is done on the listed tokens alone where that provably gives what the
whole row would give, and otherwise marks what only the whole row can tell.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.constraints.allowed import Allowed
from models.sampling.distribution import EMPTY, Bounds, Distribution, Exact, TargetRow
from models.sampling.history import Patch
from models.sampling.parameters import Sampling
from models.sampling.truncation import keep_top_k, keep_top_p

_EXP_ERROR, _ADDING_ERROR, _ROUNDING = 1e-5, 2.0**-26, 2.0**-23
"""Relative errors of a row's mass, which the graph adds up in float32: of its terms; for each token
that is added (in four lanes or more); for each unit of the log-sum-exp, which is rounded too."""

_LARGEST_EXPONENT = 600.0
"""Beyond it exp overflows."""

_LEAST_WEIGHT = 1e-250
"""Of the most likely token's: below it a token is as good as forbidden, as with a bias of -inf."""

_FEW = 1024
"""Where at most so many tokens are allowed all of them are listed: few of them are likely ones."""

Opened = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Head:
    """The listed tokens of a row after penalties and bias, most likely first.

    Those not listed have at most the logit `ceiling`; `outside` of them are allowed. The first
    `ranked` listed tokens are certainly the most likely ones of all. `changed`: some logit is not
    as the target gave it.
    """

    ids: NDArray[np.int64]
    logits: NDArray[np.float64]
    ceiling: float
    outside: int
    ranked: int
    changed: bool


def process(
    row: TargetRow,
    sampling: Sampling,
    patch: Patch | None,
    opened: Opened,
    allowed: Allowed | None = None,
) -> Distribution:
    """The distribution behind `row`, of the tokens that are `allowed` (None: all). `opened` is
    called whenever the whole row is looked at."""
    if sampling.greedy and patch is not None and patch.only_lowers and allowed is None:
        likeliest = _likeliest(row, patch)
        if likeliest is not None:
            return Distribution.single(likeliest)
    if allowed is not None and allowed.count <= _FEW:
        opened()
        head = _few(row, sampling, patch, allowed)
    else:
        head = _head(row, sampling, patch, allowed)

    def whole() -> Exact:
        opened()
        return resolve(row, head.ids, sampling, patch, allowed)

    if sampling.greedy:
        return _greedy(row, head, sampling, patch, opened, allowed)
    if head.outside and not head.ranked:
        return Distribution.of_whole(whole())
    return _bounded(row, head, sampling, whole)


def _likeliest(row: TargetRow, patch: Patch) -> int | None:
    """The most likely token where logits only fall: no later than the first listed one that stays
    as it is. None: all of them fell."""
    best, most = -1, -math.inf
    for token, logit in zip(row.ids.tolist(), row.values.tolist(), strict=True):
        lowered = patch.lowered(token, logit)
        left = logit if lowered is None else lowered
        if left > most or (left == most and token < best):
            best, most = token, left
        if lowered is None:
            return best
    return None


def resolve(
    row: TargetRow,
    listed: NDArray[np.int64],
    sampling: Sampling,
    patch: Patch | None,
    allowed: Allowed | None = None,
) -> Exact:
    """The same from the whole row; `listed` are the tokens to list."""
    logits = _patched(row, sampling, patch, allowed)
    largest = float(logits.max())
    weights = logits - np.float32(largest)
    weights *= np.float32(1 / sampling.temperature)
    np.exp(weights, out=weights)
    if allowed is None:
        _truncate(weights, sampling)
    else:
        possible = weights[allowed.ids]
        _truncate(possible, sampling)
        weights[allowed.ids] = possible
    inside = listed[weights[listed] > 0]
    exact = np.exp((logits[inside].astype(np.float64) - largest) / sampling.temperature)
    weights[inside] = 0
    return Exact(inside, exact, weights)


def _truncate(weights: NDArray[np.float32], sampling: Sampling) -> None:
    """Of `weights`, the largest of which is 1, set those to 0 that are not kept."""
    if 0 < sampling.top_k < weights.size:
        keep_top_k(weights, sampling.top_k)
    if sampling.top_p < 1:
        keep_top_p(weights, sampling.top_p)
    if sampling.min_p > 0:
        weights *= weights >= sampling.min_p


def _head(row: TargetRow, sampling: Sampling, patch: Patch | None, allowed: Allowed | None) -> Head:
    ids, logits = row.ids, row.values.astype(np.float64)
    ceiling, possible = float(logits[-1]), row.vocab_size if allowed is None else allowed.count
    if patch is not None:
        listed = ids.tolist()
        places, changes = patch.among(listed)
        logits[places] = changes.apply(sampling, logits[places])
        # Tokens further down that may have risen are listed as well; those that fell stay below.
        rising = patch.rising(listed)
        if rising is not None:
            raised = row.whole()[rising.ids].astype(np.float64)
            ids = np.concatenate([ids, rising.ids])
            logits = np.concatenate([logits, rising.apply(sampling, raised)])
    if allowed is not None:
        kept = allowed.flags[ids]
        ids, logits = ids[kept], logits[kept]
    outside, ranked = possible - ids.size, ids.size
    if patch is not None:
        ids, logits = _by_logit(ids, logits)
        if outside:
            ranked = int(np.count_nonzero(logits > ceiling))
    changed = patch is not None or allowed is not None
    return Head(ids, logits, ceiling, outside, ranked, changed)


def _few(row: TargetRow, sampling: Sampling, patch: Patch | None, allowed: Allowed) -> Head:
    """All tokens that are allowed."""
    ids = allowed.ids
    logits = row.whole()[ids].astype(np.float64)
    if patch is not None:
        places, changes = patch.among(ids.tolist())
        logits[places] = changes.apply(sampling, logits[places])
    ids, logits = _by_logit(ids, logits)
    return Head(ids, logits, -np.inf, 0, ids.size, changed=True)


def _by_logit(
    ids: NDArray[np.int64], logits: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Falling; of equal ones the lower id first."""
    order = np.lexsort((ids, -logits))
    return ids[order], logits[order]


def _patched(
    row: TargetRow, sampling: Sampling, patch: Patch | None, allowed: Allowed | None
) -> NDArray[np.float32]:
    logits = row.whole()
    if patch is None and allowed is None:
        return logits
    logits = logits.copy()
    if patch is not None:
        changes = patch.all()
        logits[changes.ids] = changes.apply(sampling, logits[changes.ids].astype(np.float64))
    if allowed is not None:
        logits[~allowed.flags] = -np.inf
    return logits


def _greedy(
    row: TargetRow,
    head: Head,
    sampling: Sampling,
    patch: Patch | None,
    opened: Opened,
    allowed: Allowed | None,
) -> Distribution:
    if head.ranked:
        return Distribution.single(int(head.ids[0]))
    opened()
    return Distribution.single(int(_patched(row, sampling, patch, allowed).argmax()))


def _bounded(
    row: TargetRow, head: Head, sampling: Sampling, whole: Callable[[], Exact]
) -> Distribution:
    """The listed tokens come most likely first, so every truncation keeps the first few of them.

    `sure` of these are certainly kept.
    """
    weights = np.exp((head.logits - head.logits[0]) / sampling.temperature)
    bounds = _tail_bounds(row, head, sampling.temperature) if head.outside else EMPTY
    kept = sure = weights.size
    if weights[-1] < _LEAST_WEIGHT:
        kept = sure = int(np.count_nonzero(weights >= _LEAST_WEIGHT))
    ranked = min(head.ranked, kept)
    top_k = sampling.top_k if 0 < sampling.top_k < row.vocab_size else 0
    if 0 < top_k <= ranked:
        kept, sure, bounds = top_k, top_k, EMPTY
    elif top_k:
        sure, bounds = ranked, bounds.partly()
    if sampling.top_p < 1:
        kept, sure, bounds = _cut_top_p(weights[:kept], sure, bounds, ranked, sampling.top_p)
    if sampling.min_p > 0:
        kept = int(np.count_nonzero(weights[:kept] >= sampling.min_p))
        sure = min(sure, kept)
        bounds = EMPTY if bounds.token < sampling.min_p else bounds.partly()
    ids, weights = head.ids[:kept], weights[:kept]
    if sure == kept and bounds.most == 0:
        return Distribution(ids, weights)
    return Distribution(ids, weights, sure, bounds, whole)


def _cut_top_p(
    weights: NDArray[np.float64], sure: int, bounds: Bounds, ranked: int, top_p: float
) -> tuple[int, int, Bounds]:
    """The nucleus, tokens before which less than `top_p` of the mass has passed: how many may
    belong to it, how many certainly do, and what of the tail may.

    Tokens behind the first `ranked` may have unlisted ones before them: what has passed is at
    least what is listed.
    """
    mass = np.cumsum(weights)
    least = top_p * (float(mass[sure - 1]) + bounds.least)
    most = top_p * (float(mass[-1]) + bounds.most)
    kept = min(int(mass.searchsorted(most)) + 1, weights.size)
    inside = min(int(mass.searchsorted(least)) + 1, sure)
    if bounds.most > 0:
        inside = max(min(inside, ranked), 1)
        bounds = EMPTY if mass[ranked - 1] >= most else bounds.partly()
    return kept, inside, bounds


def _tail_bounds(row: TargetRow, head: Head, temperature: float) -> Bounds:
    """Bounds of sum exp((l - largest) / T) over the tail, from its sum at T = 1.

    With x = exp(l - largest) at most c, n tokens and a = 1 / T: for a >= 1,
    n (sum x / n)^a <= sum x^a <= c^(a-1) sum x (the power mean inequality, and x^a = x^(a-1) x);
    for a <= 1 both turn round. And sum x^a <= n c^a always.
    """
    a, n, largest = 1 / temperature, head.outside, float(head.logits[0])
    token = math.exp((head.ceiling - largest) * a)
    most = n * token
    if row.logsumexp - largest > _LARGEST_EXPONENT:
        return Bounds(0.0, most, token)
    # Relative to the target's own largest logit first, which keeps the exponents small.
    top = float(row.values[0])
    inside = float(np.add.reduce(np.exp(row.values - row.values[0]), dtype=np.float64))
    total = math.exp(row.logsumexp - top)
    relative = _EXP_ERROR + _ADDING_ERROR * row.vocab_size + _ROUNDING * abs(row.logsumexp)
    error = relative * total
    scale = math.exp(top - largest)
    more = (max(total - inside, 0.0) + error) * scale
    less = max(total - inside - error, 0.0) * scale
    single = math.exp(head.ceiling - largest)
    if a >= 1:
        most = min(most, more * single ** (a - 1))
        least = n * min(less / n, single) ** a
    else:
        most = min(most, n * (more / n) ** a)
        least = less * single ** (a - 1) if single > 0 else 0.0
    return Bounds(0.0 if head.changed else min(least, most), most, token)
