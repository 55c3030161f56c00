"""The loss of a draft: its cross entropy with the target's distribution, over part of the words.

The target is known by its K likeliest tokens. The draft's normaliser is over its whole vocabulary;
computed are the tokens that the target names anywhere in the batch, the most frequent ones, and of
the rest a uniform sample, each standing for as many as were left out (importance sampling as in
Jean et al., arXiv 1412.2007): the expectation of the sum is right, at a fraction of the LM head.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Teacher:
    """The target at A places: its likeliest ids [A, K], falling, their probabilities among
    themselves [A, K] (rows sum to 1), and the weight of each place [A]."""

    ids: Tensor
    chances: Tensor
    weights: Tensor


@dataclass(frozen=True, slots=True)
class Candidates:
    """Rising ids [C] whose logits are computed, and the log of how many each stands for [C]."""

    ids: Tensor
    shares: Tensor


def teach(top_ids: Tensor, top_logs: Tensor, weights: Tensor, *, sharpness: float = 1.0) -> Teacher:
    """`sharpness` is an exponent on the target's probabilities: above 1 the draft is drawn to the
    first choice."""
    return Teacher(top_ids, (sharpness * top_logs).softmax(-1), weights)


def candidates(
    named: Tensor, frequent: Tensor, size: int, *, sampled: int, generator: torch.Generator
) -> Candidates:
    """Of a vocabulary of `size`: all `named` ids, the `frequent`, and a sample of the rest."""
    certain = torch.zeros(size, dtype=torch.bool)
    certain[named.flatten().cpu()] = True
    certain[frequent.cpu()] = True
    rest = (~certain).nonzero()[:, 0]
    left_out = len(rest)
    if left_out > sampled:
        rest = rest[torch.randperm(left_out, generator=generator)[:sampled]]
    share = torch.zeros(size)
    if len(rest):
        share[rest] = torch.log(torch.tensor(left_out / len(rest)))
    certain[rest] = True
    ids = certain.nonzero()[:, 0]
    return Candidates(ids.to(named.device), share[ids].to(named.device))


def cross_entropy(logits: Tensor, chosen: Candidates, teacher: Teacher) -> Tensor:
    """[A] of logits [A, C] of the chosen ids, which include all that `teacher` names."""
    named = logits.gather(1, torch.searchsorted(chosen.ids, teacher.ids))
    normaliser = torch.logsumexp(logits + chosen.shares, dim=1)
    return normaliser - (teacher.chances * named).sum(-1)
