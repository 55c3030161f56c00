"""Rows made of given logits, and the processing of a whole row written out naively."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bench.rows import HostRow, host_row
from models.sampling.parameters import Sampling


def given(logits: ArrayLike, listed: int = 4) -> HostRow:
    """A row as the target's graph would give it: the `listed` largest logits and the rest."""
    return host_row(np.asarray(logits, dtype=np.float32), listed)


def naive(
    logits: ArrayLike,
    sampling: Sampling,
    prompt: Sequence[int] = (),
    answer: Sequence[int] = (),
    forbidden: Sequence[int] = (),
) -> NDArray[np.float64]:
    """Probabilities after all processing, one plain step after the other, in float64."""
    scores = np.array(logits, dtype=np.float64)
    for token in {*prompt, *answer}:
        penalty = sampling.repetition_penalty
        scores[token] = scores[token] / penalty if scores[token] > 0 else scores[token] * penalty
    for token in answer:
        scores[token] -= sampling.frequency_penalty
    for token in set(answer):
        scores[token] -= sampling.presence_penalty
    for token, bias in sampling.logit_bias:
        scores[token] += bias
    for token in forbidden:
        scores[token] = -np.inf
    p = np.exp((scores - scores.max()) / sampling.temperature)
    p = _only(p, np.argsort(-p, kind="stable")[: sampling.top_k or p.size])
    order = np.argsort(-p, kind="stable")
    before = np.cumsum(p[order]) - p[order]
    if sampling.top_p < 1:
        p = _only(p, order[: max(1, int(np.count_nonzero(before < sampling.top_p)))])
    p = np.where(p >= sampling.min_p * p.max(), p, 0)
    normalised: NDArray[np.float64] = p / p.sum()
    return normalised


def _only(p: NDArray[np.float64], kept: NDArray[np.int64]) -> NDArray[np.float64]:
    rest = np.zeros_like(p)
    rest[kept] = p[kept]
    normalised: NDArray[np.float64] = rest / rest.sum()
    return normalised
