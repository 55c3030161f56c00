"""What a drafter is: the small protocol every drafter follows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Proposal:
    """q: what a draft token was drawn from, after all processing, given its earlier siblings.

    `ids` int64 [n] are the tokens of probability above 0, `probabilities` float64 [n] sum to 1.
    """

    ids: NDArray[np.int64]
    probabilities: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Draft:
    """Tokens proposed for one round, behind the last committed token.

    `parents[i]` is the index of the draft token that `tokens[i]` follows, -1 for the last
    committed token; None is a chain (`parents[i] == i - 1`). Parents come before their children;
    siblings are different tokens, in the order in which they are tried. `proposals[i]` is q of
    `tokens[i]`; None means one-hot (a deterministic draft). `confidence[i]` estimates the
    probability that `tokens[i]` is accepted given that its predecessors are. `source` is the
    drafter's name.
    """

    tokens: tuple[int, ...] = ()
    parents: tuple[int, ...] | None = None
    proposals: tuple[Proposal, ...] | None = None
    confidence: tuple[float, ...] | None = None
    source: str = ""


class Drafter(Protocol):
    """The drafter of one request. Its state follows the request's committed tokens."""

    @property
    def name(self) -> str: ...

    def reset(self, tokens: Sequence[int]) -> None:
        """Begin a request whose prompt is `tokens`."""

    def propose(self, budget: int) -> Draft:
        """At most `budget` tokens to verify next; an empty draft where nothing is known."""

    def commit(self, tokens: Sequence[int]) -> None:
        """The tokens the round added: the accepted path and the bonus token."""
