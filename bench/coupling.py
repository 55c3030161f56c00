"""How often a draft drawn from q agrees with a token drawn from p: what mathematics says.

With TV = half the sum of |p - q|:

- No way of drawing both can agree more often than 1 - TV; rule `classic` reaches it (Leviathan et
  al. 2023, arXiv 2211.17192, section 3).
- With noise that both share (Gumbel-max, rule `coupled`) they agree with probability
  sum over x of 1 / (sum over y of max(p(y)/p(x), q(y)/q(x))), which is at least (1 - TV)/(1 + TV)
  (Daliri, Musco and Suresh 2024, "Coupling without communication and drafter-invariant
  speculative decoding", arXiv 2408.07978).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Expected:
    """Probabilities of agreement at one position, and their bounds.

    `coupled` is that of noise per token. `listed` is that of rule `coupled` as it is built: the
    target's unlikely tokens take part as one candidate, with noise of its own.
    """

    classic: float
    coupled: float
    listed: float

    @property
    def least_coupled(self) -> float:
        variation = 1 - self.classic
        return (1 - variation) / (1 + variation)

    def within(self, tolerance: float = 1e-9) -> bool:
        return self.least_coupled - tolerance <= self.coupled <= self.classic + tolerance


def expected(p: Floats, q: Floats, listed: NDArray[np.bool_] | None = None) -> Expected:
    """Of two distributions [V] over the same tokens.

    `listed` [V] are the target's tokens with noise of their own (None: all).
    """
    coupled = float(shared_noise_terms(p, q).sum())
    as_built = coupled if listed is None else _with_tail(p, q, listed)
    return Expected(overlap(p, q), coupled, as_built)


def overlap(p: Floats, q: Floats) -> float:
    """1 - TV: the sum over x of min(p(x), q(x))."""
    return float(np.minimum(p, q).sum())


def shared_noise_terms(p: Floats, q: Floats) -> Floats:
    """[n]: the probability that both draws are the token at this place.

    In order of falling p/q the inner maximum is p(y)/p(x) up to x and q(y)/q(x) behind it, so that
    two running sums give all of them: O(n log n).
    """
    both = np.flatnonzero((p > 0) | (q > 0))
    weights_p, weights_q = p[both], q[both]
    with np.errstate(divide="ignore"):
        order = np.argsort(-(np.log(weights_p) - np.log(weights_q)), kind="stable")
    ahead = np.cumsum(weights_p[order])
    behind = np.cumsum(weights_q[order][::-1])[::-1] - weights_q[order]
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        agreed = 1 / (ahead / weights_p[order] + behind / weights_q[order])
    terms = np.zeros_like(p)
    here = both[order]
    terms[here] = np.where((p[here] > 0) & (q[here] > 0), agreed, 0.0)
    return terms


def _with_tail(p: Floats, q: Floats, listed: NDArray[np.bool_]) -> float:
    """Agreement where the target's tokens that are not `listed` are one candidate.

    They agree on a listed token as above. Otherwise the candidate wins and, independently of how,
    is the draft's token x with probability p(x) / tail. With E the exponential variates that both
    races share, P(x wins for q, the candidate for p) is, for weights p' with the candidate,
    q(x) tail times the integral over a, b > 0 of exp(-sum over y of max(a q(y), b p'(y))).
    """
    outside = ~listed
    tail = float(p[outside].sum())
    if tail == 0:
        return float(shared_noise_terms(p, q).sum())
    symbols_p = np.append(np.where(listed, p, 0.0), tail)
    symbols_q = np.append(q, 0.0)
    agreed = float(shared_noise_terms(symbols_p, symbols_q).sum())
    picked = float((q[outside] * p[outside]).sum())
    return agreed + picked * _race_integral(symbols_p, symbols_q)


def _race_integral(p: Floats, q: Floats) -> float:
    """The integral over a, b > 0 of exp(-sum of max(a q, b p)).

    With b = r a it is that over r of 1 / M(r)^2, M(r) = sum of max(q, r p): linear between the
    ratios q/p, where the integral of 1 / (A + B r)^2 from s to t is
    (t - s) / ((A + B s) (A + B t)).
    """
    have_p = p > 0
    ratios = q[have_p] / p[have_p]
    order = np.argsort(ratios)
    start = ratios[order]
    slope = np.cumsum(p[have_p][order])
    level = q.sum() - np.cumsum(q[have_p][order])
    at_start = level + slope * start
    end = start[1:]
    inner = (end - start[:-1]) / (at_start[:-1] * (level[:-1] + slope[:-1] * end))
    first = start[0] / (q.sum() * q.sum())
    return float(first + inner.sum() + 1 / (slope[-1] * at_start[-1]))
