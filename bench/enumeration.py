"""The distribution of whole answers, computed the long way: every answer there is, token by token.

Written for `bench distribution` alone and shares nothing with the code that it judges: lists of
Python floats, the whole vocabulary at every step, no bounds and no state.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from models.sampling.parameters import Sampling

Logits = Callable[[tuple[int, ...]], Sequence[float]]
"""The target's logits [V] behind an answer so far."""


def joint(
    logits: Logits, vocab_size: int, length: int, sampling: Sampling, prompt: Sequence[int]
) -> NDArray[np.float64]:
    """The probability of every answer of `length` tokens: [V, ..., V]."""
    probabilities = np.ones((vocab_size,) * length)
    for done in range(length):
        for answer in itertools.product(range(vocab_size), repeat=done):
            token = probabilities_behind(logits(answer), sampling, prompt, answer)
            shape = (vocab_size,) + (1,) * (length - done - 1)
            probabilities[answer] *= np.array(token).reshape(shape)
    return probabilities


def probabilities_behind(
    logits: Sequence[float], sampling: Sampling, prompt: Sequence[int], answer: Sequence[int]
) -> list[float]:
    """Of every next token, in the order of `Sampling`. Temperature must be above 0."""
    changed = [
        _changed(token, float(logit), sampling, prompt, answer)
        for token, logit in enumerate(logits)
    ]
    scaled = [logit / sampling.temperature for logit in changed]
    weights = [math.exp(logit - max(scaled)) for logit in scaled]
    falling = sorted(range(len(scaled)), key=lambda token: (-scaled[token], token))
    kept = falling[: sampling.top_k] if sampling.top_k else falling
    kept = _nucleus(kept, weights, sampling.top_p)
    kept = [token for token in kept if weights[token] >= sampling.min_p]
    total = math.fsum(weights[token] for token in kept)
    return [weights[token] / total if token in kept else 0.0 for token in range(len(weights))]


def _changed(
    token: int, logit: float, sampling: Sampling, prompt: Sequence[int], answer: Sequence[int]
) -> float:
    if token in prompt or token in answer:
        penalty = sampling.repetition_penalty
        logit = logit / penalty if logit > 0 else logit * penalty
    if token in answer:
        logit -= sampling.presence_penalty
    logit -= sampling.frequency_penalty * list(answer).count(token)
    return logit + sum(bias for biased, bias in sampling.logit_bias if biased == token)


def _nucleus(falling: list[int], weights: list[float], top_p: float) -> list[int]:
    wanted = top_p * math.fsum(weights[token] for token in falling)
    kept, mass = list[int](), 0.0
    for token in falling:
        if kept and mass >= wanted:
            break
        kept.append(token)
        mass += weights[token]
    return kept
