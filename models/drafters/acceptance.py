"""How likely a copied token is right, by the match behind it and by what else followed it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import IntEnum


class Support(IntEnum):
    """What the two most recent occurrences of a token's context say about it."""

    DISPUTED = 0
    ALONE = 1
    AGREED = 2


# The share of copied tokens that a 135M instruction model's own greedy answers confirmed, over the
# categories of Spec-Bench: by support, for matches of 1, 2, 3, 4, 5 to 8, 9 to 11, 12 to 15 and
# more tokens. Smoothed to rise with the match.
_CONFIRMED = (
    (0.13, 0.24, 0.41, 0.52, 0.60, 0.78, 0.83, 0.87),
    (0.29, 0.53, 0.62, 0.73, 0.83, 0.88, 0.90, 0.92),
    (0.44, 0.72, 0.80, 0.91, 0.92, 0.97, 0.985, 0.99),
)
_CLASS_OF_LENGTH = (0, 0, 1, 2, 3, 4, 4, 4, 4, 5, 5, 5, 6, 6, 6, 6, 7)
_LONGEST = len(_CLASS_OF_LENGTH) - 1
_ODDS = tuple(
    tuple(shares[kind] / (1 - shares[kind]) for kind in _CLASS_OF_LENGTH) for shares in _CONFIRMED
)
# Matches of one token, of two to four, and longer ones are adapted apart.
_GROUP_OF_LENGTH = (0, 0, 1, 1, 1, *(2,) * (_LONGEST - 4))
_LEARNING_RATE = 0.15
# Of tokens that were not their context's preferred continuation: the share confirmed where those
# before were wrong, for the second and for later ones, by match as above (24 of those answers; few
# had more than two tokens matched, so the shares stay flat there).
_INSTEAD = (
    (0.13, 0.18, 0.25, 0.28, 0.30, 0.30, 0.30, 0.30),
    (0.06, 0.08, 0.10, 0.10, 0.10, 0.10, 0.10, 0.10),
)
_ODDS_INSTEAD = tuple(
    tuple(shares[kind] / (1 - shares[kind]) for kind in _CLASS_OF_LENGTH) for shares in _INSTEAD
)
_GROUP_INSTEAD = 3
_LEAST, _MOST = 0.05, 20.0


class CopyConfidence:
    """The estimates of one request.

    They begin with what such matches are worth in general. The request's own outcomes scale the
    odds (online logistic regression with one weight per group), the recent ones most.

    Once a copied token is accepted the match is one token longer, so the i-th token of a draft is
    judged by the match length plus i. Alternatives to a token are judged, and adapted, apart.
    """

    def __init__(self) -> None:
        self._scale = [1.0, 1.0, 1.0, 1.0]

    def estimates(self, matched: int, supports: Sequence[Support]) -> tuple[float, ...]:
        """Per token of a draft: the probability that it is accepted, given that all before are."""
        scale, found = self._scale, list[float]()
        for length, support in enumerate(supports, start=matched):
            length = length if length < _LONGEST else _LONGEST
            odds = _ODDS[support][length] * scale[_GROUP_OF_LENGTH[length]]
            found.append(odds / (1 + odds))
        return tuple(found)

    def observe(self, matched: int, support: Support, accepted: bool, rank: int = 0) -> None:
        surprise = accepted - self.estimate(matched, support, rank)
        group = _GROUP_INSTEAD if rank else _GROUP_OF_LENGTH[min(matched, _LONGEST)]
        scaled = self._scale[group] * math.exp(_LEARNING_RATE * surprise)
        self._scale[group] = min(_MOST, max(_LEAST, scaled))

    def estimate(self, matched: int, support: Support, rank: int = 0) -> float:
        """The probability that a token is right, given that its `rank` earlier siblings are not."""
        if not rank:
            return self.estimates(matched, (support,))[0]
        odds = _ODDS_INSTEAD[rank > 1][min(matched, _LONGEST)] * self._scale[_GROUP_INSTEAD]
        return odds / (1 + odds)
