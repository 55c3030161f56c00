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

LEAST_MASS = 0.05
"""Share of the target's distribution that must lie in the draft vocabulary for a place to count."""


@dataclass(frozen=True, slots=True)
class Teacher:
    """The target at A places: columns of the draft vocabulary [A, K], -1 where it has none, their
    probabilities [A, K] (rows sum to 1, or 0 where nothing is known), the weight of each place [A].
    """

    columns: Tensor
    chances: Tensor
    weights: Tensor

    def best(self) -> Tensor:
        """[A] The likeliest token's column; -1 where the draft vocabulary lacks it."""
        return self.columns[:, 0]


@dataclass(frozen=True, slots=True)
class Candidates:
    """Rising columns [C] whose logits are computed, and log of how many each stands for [C]."""

    columns: Tensor
    shares: Tensor


def teach(
    top_ids: Tensor,
    top_logs: Tensor,
    weights: Tensor,
    column_of: Tensor,
    *,
    sharpness: float = 1.0,
) -> Teacher:
    """`column_of` [V] maps target ids to columns, -1 for none; `sharpness` is an exponent on the
    target's probabilities: above 1 the draft is drawn to its argmax."""
    columns = column_of[top_ids]
    chances = top_logs.exp() * (columns >= 0)
    mass = chances.sum(-1, keepdim=True)
    chances = chances.pow(sharpness) if sharpness != 1.0 else chances
    chances = chances / chances.sum(-1, keepdim=True).clamp_min(1e-12)
    known = mass[:, 0] >= LEAST_MASS
    return Teacher(columns, chances * known[:, None], weights * known)


def candidates(
    named: Tensor, frequent: Tensor, size: int, *, sampled: int, generator: torch.Generator
) -> Candidates:
    """Of a vocabulary of `size`: all `named` columns (-1 is none), the `frequent`, a sample."""
    certain = torch.zeros(size, dtype=torch.bool)
    certain[named[named >= 0].cpu()] = True
    certain[frequent] = True
    rest = (~certain).nonzero()[:, 0]
    if len(rest) > sampled:
        rest = rest[torch.randperm(len(rest), generator=generator)[:sampled]]
    left_out = size - int(certain.sum())
    share = torch.zeros(size)
    if len(rest):
        share[rest] = torch.log(torch.tensor(left_out / len(rest)))
    certain[rest] = True
    columns = certain.nonzero()[:, 0]
    return Candidates(columns.to(named.device), share[columns].to(named.device))


def cross_entropy(logits: Tensor, chosen: Candidates, teacher: Teacher) -> Tensor:
    """[A] of logits [A, C] of the chosen columns, which include all that `teacher` names."""
    places = torch.searchsorted(chosen.columns, teacher.columns.clamp_min(0))
    places = places.clamp_max(len(chosen.columns) - 1)
    named = logits.gather(1, places)
    normaliser = torch.logsumexp(logits + chosen.shares, dim=1)
    mass = teacher.chances.sum(-1)
    return normaliser * mass - (teacher.chances * named).sum(-1)
