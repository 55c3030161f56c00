"""Rules that trade the target's distribution for longer accepted paths. Asked for, never default.

A candidate that is the target's own draw is always accepted, and where none is accepted the
target's own draw ends the round.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from models.draft import Draft, Proposal
from models.sampling.distribution import Distribution
from models.verification.rule import Candidate, Choice, Randomness, Untrimmed


@dataclass(frozen=True, slots=True)
class Typical(Untrimmed):
    """Typical acceptance (Cai et al., Medusa, arXiv 2401.10774).

    Accept x where p(x) > min(epsilon, delta * exp(-H(p))), H the entropy in nats: a sure target
    accepts only what is likely, an undecided one anything that is not unlikely.
    """

    epsilon: float
    delta: float

    def choose(
        self, target: Distribution, candidates: Sequence[Candidate], randomness: Randomness
    ) -> Choice:
        token = target.draw(randomness.token())
        if candidates:
            threshold = min(self.epsilon, self.delta * math.exp(-target.entropy()))
            for candidate in candidates:
                if candidate.token == token or target.probability(candidate.token) > threshold:
                    return Choice(candidate.place, candidate.token)
        return Choice(None, token)


@dataclass(slots=True)
class Midpoint:
    """Halfway between the running means of what agreed and of what did not.

    None until both have been seen.
    """

    sums: list[float] = field(default_factory=lambda: [0.0, 0.0])
    counts: list[int] = field(default_factory=lambda: [0, 0])

    def note(self, value: float, agreed: bool) -> None:
        self.sums[agreed] += value
        self.counts[agreed] += 1

    @property
    def value(self) -> float | None:
        if 0 in self.counts:
            return None
        return sum(total / count for total, count in zip(self.sums, self.counts, strict=True)) / 2


class AdaSD:
    """Adaptive thresholds without parameters, after AdaSD (Lu et al., arXiv 2512.11280).

    Accept x where the Jensen-Shannon distance of p and q (base 2, in [0, 1]) is at most one
    threshold; stop a draft before the first token, its own first excepted, whose q has more entropy
    than another. Each threshold follows the request: it is the midpoint between the mean over
    tokens that were the target's own draw and the mean over those that were not. Until both kinds
    have been seen only the target's own draw is accepted, and no draft is stopped. A one-hot q has
    no entropy and is judged by p(x).
    """

    def __init__(self) -> None:
        self.distance = Midpoint()
        self.entropy = Midpoint()

    def trim(self, draft: Draft) -> Draft:
        most = self.entropy.value
        if most is None or draft.proposals is None or draft.parents is not None:
            return draft
        for length, proposal in enumerate(draft.proposals):
            if length and proposal.entropy() > most:
                return draft.first(length)
        return draft

    def choose(
        self, target: Distribution, candidates: Sequence[Candidate], randomness: Randomness
    ) -> Choice:
        token = target.draw(randomness.token())
        threshold, chosen = self.distance.value, None
        for candidate in candidates:
            agrees = candidate.token == token
            q = candidate.proposal or Proposal.single(candidate.token)
            distance = jensen_shannon_distance(target, q)
            # However close the two are: what the target excludes is not said.
            possible = target.weight(candidate.token)[1] > 0
            close = possible and threshold is not None and distance <= threshold
            if chosen is None and (agrees or close):
                chosen = candidate
            self.distance.note(distance, agrees)
            self.entropy.note(q.entropy(), agrees)
        return Choice(None, token) if chosen is None else Choice(chosen.place, chosen.token)


def jensen_shannon_distance(target: Distribution, q: Proposal) -> float:
    """Square root of the Jensen-Shannon divergence, base 2.

    Where q is 0 each token adds p/2 to the divergence, so p is needed on the support of q alone.
    """
    p = np.array([target.probability(token) for token in q.ids.tolist()])
    middle = (p + q.probabilities) / 2
    alone = max(0.0, 1.0 - float(p.sum())) / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        own = np.where(p > 0, p * np.log2(p / middle), 0.0)
        other = np.where(
            q.probabilities > 0, q.probabilities * np.log2(q.probabilities / middle), 0.0
        )
    return math.sqrt(max(0.0, alone + float(own.sum() + other.sum()) / 2))
