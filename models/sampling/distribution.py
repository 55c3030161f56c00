"""The distribution a token is drawn from, known as far as it must be.

The target's graph gives the host the most likely tokens of a row and its log-sum-exp. The tokens
that these make explicit are listed; all others are the tail, of which only bounds are known. What
can be decided from the bounds is decided; only what cannot be opens the whole row (`resolve`).
Either way the answer is that of the whole row: the bounds are proofs, not estimates.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from models.draft import Proposal
from models.sampling.noise import INSIDE_TAIL, TAIL, Purpose, exponentials, uniform


class TargetRow(Protocol):
    """The target's output behind one token.

    The K largest logits in falling order with their ids (of equal ones the lower id first), the
    log-sum-exp of all, and the whole row: [vocab_size], float32, readable until the next run.
    """

    @property
    def values(self) -> NDArray[np.float32]: ...

    @property
    def ids(self) -> NDArray[np.int64]: ...

    @property
    def logsumexp(self) -> float: ...

    @property
    def vocab_size(self) -> int: ...

    def whole(self) -> NDArray[np.float32]: ...


class Bounds(NamedTuple):
    """Of the tail: its least and its most mass, and the most of any one token in it."""

    least: float = 0.0
    most: float = 0.0
    token: float = 0.0

    def partly(self) -> Bounds:
        """Of what a truncation may leave of the tail."""
        return Bounds(0.0, self.most, self.token)


@dataclass(frozen=True, slots=True)
class Exact:
    """A whole row, processed: the weights of the listed tokens and of all others [vocab_size]."""

    ids: NDArray[np.int64]
    weights: NDArray[np.float64]
    tail: NDArray[np.float32]


class Draw(NamedTuple):
    """Which random numbers a draw uses."""

    seed: int
    position: int
    purpose: Purpose


EMPTY = Bounds()
_BLOCK = 256
_CERTAIN = np.ones(1)
_CERTAIN.flags.writeable = False


class Distribution:
    """Weights, not normalised, of the listed tokens `ids` (all above 0) and of the tail.

    The first `sure` of the listed tokens certainly belong to the support; the others' weights
    count only if the resolved row confirms them. What is open is read from the row and the history
    when it is resolved: before the target's next run and the sampler's next `commit`.
    """

    __slots__ = ("_open", "_tail", "_tail_mass", "bounds", "ids", "sure", "weights")

    def __init__(
        self,
        ids: NDArray[np.int64],
        weights: NDArray[np.float64],
        sure: int | None = None,
        bounds: Bounds = EMPTY,
        opened: Callable[[], Exact] | None = None,
    ) -> None:
        self.ids = ids
        self.weights = weights
        self.sure = ids.size if sure is None else sure
        self.bounds = bounds
        self._open = opened
        self._tail: NDArray[np.float32] | None = None
        self._tail_mass = 0.0

    @classmethod
    def single(cls, token: int) -> Distribution:
        """Certainty: what temperature 0 leaves."""
        return cls(np.array([token], dtype=np.int64), _CERTAIN)

    @classmethod
    def of_whole(cls, whole: Exact) -> Distribution:
        """From a whole row that is processed already."""
        resolved = cls(whole.ids, whole.weights)
        resolved._set_tail(whole.tail)
        return resolved

    @property
    def exact(self) -> bool:
        """Nothing is left to bounds."""
        return self._open is None or (self.sure == self.ids.size and self.bounds.most == 0)

    def resolve(self) -> None:
        """Open the whole row, if anything is still open."""
        if self.exact or self._open is None:
            return
        whole = self._open()
        self._open, self.bounds = None, EMPTY
        self.ids, self.weights, self.sure = whole.ids, whole.weights, whole.ids.size
        self._set_tail(whole.tail)

    @property
    def _certain(self) -> bool:
        return self.ids.size == 1 and self._open is None and self._tail is None

    @property
    def most(self) -> float:
        """The most that everything can weigh together."""
        return float(np.add.reduce(self.weights)) + self._tail_mass + self.bounds.most

    @property
    def least(self) -> float:
        """The least that everything can weigh together: the same as `most` where it is exact."""
        return float(np.add.reduce(self.weights[: self.sure])) + self._tail_mass + self.bounds.least

    def weight(self, token: int) -> tuple[float, float]:
        """Bounds of the weight of one token."""
        places = np.flatnonzero(self.ids == token)
        if places.size:
            place = places[0]
            weight = float(self.weights[place])
            return (weight if place < self.sure else 0.0), weight
        if self._tail is not None:
            weight = float(self._tail[token])
            return weight, weight
        return 0.0, self.bounds.token

    def probability(self, token: int) -> float:
        """p(token); resolves where bounds do not give it."""
        self.resolve()
        return self.weight(token)[1] / self.most

    def accepts(self, token: int, u: float, q: float = 1.0) -> bool:
        """Whether u <= p(token) / q, for u in (0, 1]; resolves only where bounds cannot tell."""
        least, most = self.weight(token)
        if u * q * self.most <= least:
            return True
        if self.exact or u * q * self.least > most:
            return False
        self.resolve()
        return self.accepts(token, u, q)

    def draw(self, noise: Draw) -> int:
        """One token: the Gumbel-max draw over the listed tokens and the tail as one candidate.

        The maximum of Gumbel variates over the tail's tokens is distributed as one variate at the
        tail's log-sum-exp, so the tail takes part with noise of its own and is opened only when
        it wins; which of its tokens it is, a number of its own decides by inversion.
        """
        if self._certain:
            return int(self.ids[0])
        tokens = np.empty(self.ids.size + 1, dtype=np.int64)
        tokens[:-1], tokens[-1] = self.ids, TAIL
        times = exponentials(noise.seed, noise.position, noise.purpose, tokens)
        arrivals = times[:-1] / self.weights
        first = int(arrivals.argmin()) if arrivals.size else -1
        soonest = float(arrivals[first]) if arrivals.size else np.inf
        tail = float(times[-1])
        if self.exact:
            if self._tail_mass == 0 or soonest <= tail / self._tail_mass:
                return int(self.ids[first])
            return self._draw_tail(noise)
        # The tail has at most this mass, so it arrives no sooner.
        ahead = self.bounds.most == 0 or soonest < tail / self.bounds.most
        if ahead and 0 <= first < self.sure:
            return int(self.ids[first])
        self.resolve()
        return self.draw(noise)

    def without(self, token: int) -> Distribution:
        """The residual of a rejected one-hot draft: max(0, p - q), not normalised."""
        kept = self.ids != token
        bounds, opened, sure = self.bounds, self._open, int(np.count_nonzero(kept[: self.sure]))
        if kept.all():
            bounds = Bounds(max(0.0, bounds.least - bounds.token), bounds.most, bounds.token)
        rest = Distribution(
            self.ids[kept],
            self.weights[kept],
            sure,
            bounds,
            None if opened is None else lambda: _without(opened(), token),
        )
        if self._tail is not None:
            tail = self._tail.copy()
            tail[token] = 0
            rest._set_tail(tail)
        return rest

    def minus(self, proposal: Proposal) -> Distribution:
        """The residual of a rejected sampled draft: max(0, p - q), not normalised.

        Where p is q nothing is left of it, and nothing is rejected but by rounding: then p stays.
        """
        self.resolve()
        total = self.most
        ids = np.union1d(self.ids, proposal.ids)
        weights = np.zeros(ids.size)
        weights[np.searchsorted(ids, self.ids)] = self.weights
        tail = self._tail
        if tail is not None:
            listed = np.isin(ids, self.ids, invert=True)
            weights[listed] = tail[ids[listed]]
            tail = tail.copy()
            tail[ids] = 0
        weights[np.searchsorted(ids, proposal.ids)] -= total * proposal.probabilities
        left = weights > 0
        rest = Distribution(ids[left], weights[left])
        if tail is not None:
            rest._set_tail(tail)
        return rest if rest.most > 0 else self

    def listed(self) -> Distribution:
        """The listed tokens alone, as if they were everything: what a drafter draws from.

        Where none is left of them, the most likely token of the tail.
        """
        if self.ids.size:
            return Distribution(self.ids, self.weights)
        self.resolve()
        assert self._tail is not None, "a support is never empty"
        return Distribution.single(int(self._tail.argmax()))

    def proposal(self) -> Proposal:
        """q of a draft drawn from this distribution, which must have no tail."""
        assert self.exact, "a drafter draws from listed tokens"
        assert self._tail is None, "a drafter draws from listed tokens"
        return Proposal(self.ids, self.weights / self.weights.sum())

    def entropy(self) -> float:
        """In nats; resolves."""
        self.resolve()
        weights = self.weights
        if self._tail is not None:
            weights = np.concatenate([weights, self._tail[self._tail > 0].astype(np.float64)])
        p = weights[weights > 0] / weights.sum()
        return -float((p * np.log(p)).sum())

    def dense(self, vocab_size: int) -> NDArray[np.float64]:
        """All probabilities [vocab_size]; resolves."""
        self.resolve()
        dense = np.zeros(vocab_size) if self._tail is None else self._tail.astype(np.float64)
        dense[self.ids] = self.weights
        probabilities: NDArray[np.float64] = dense / dense.sum()
        return probabilities

    def _set_tail(self, tail: NDArray[np.float32]) -> None:
        self._tail = tail
        self._tail_mass = float(tail.sum(dtype=np.float64))

    def _draw_tail(self, noise: Draw) -> int:
        assert self._tail is not None, "only a resolved tail has mass"
        u = uniform(noise.seed, noise.position, noise.purpose, INSIDE_TAIL)
        return _inverted(self._tail, u)


def _inverted(weights: NDArray[np.float32], u: float) -> int:
    """The first index at which the running sum reaches the fraction `u` in (0, 1] of it all.

    Block by block: adding up every token one by one would take several times as long.
    """
    starts = np.arange(0, weights.size, _BLOCK)
    blocks = np.add.reduceat(weights, starts, dtype=np.float64).cumsum()
    wanted = u * float(blocks[-1])
    block = int(np.searchsorted(blocks, wanted))
    start = block * _BLOCK
    passed = float(blocks[block - 1]) if block else 0.0
    inside = weights[start : start + _BLOCK].astype(np.float64)
    place = int(np.searchsorted(inside.cumsum(), wanted - passed))
    # Rounding may leave `wanted` beyond the block's last sum.
    return start + min(place, int(np.flatnonzero(inside)[-1]))


def _without(whole: Exact, token: int) -> Exact:
    kept = whole.ids != token
    tail = whole.tail.copy()
    tail[token] = 0
    return Exact(whole.ids[kept], whole.weights[kept], tail)
