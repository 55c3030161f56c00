"""What a drafter is: the small protocol every drafter follows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from models.trees import depths, is_chain


@dataclass(frozen=True, slots=True)
class Proposal:
    """q: what a draft token was drawn from, after all processing, given its earlier siblings.

    `ids` int64 [n] are the tokens of probability above 0, `probabilities` float64 [n] sum to 1.
    """

    ids: NDArray[np.int64]
    probabilities: NDArray[np.float64]

    @classmethod
    def single(cls, token: int) -> Proposal:
        """That of a token that was not drawn."""
        return cls(np.array([token], dtype=np.int64), np.ones(1))

    def of(self, token: int) -> float:
        """q(token)."""
        place = int((self.ids == token).argmax())
        return float(self.probabilities[place]) if self.ids[place] == token else 0.0

    def entropy(self) -> float:
        """In nats."""
        return -math.fsum(q * math.log(q) for q in self.probabilities.tolist() if q > 0)


class Draft(NamedTuple):
    """Tokens proposed for one round, behind the last committed token.

    `parents[i]` is the index of the draft token that `tokens[i]` follows, -1 for the last
    committed token; None is a chain (`parents[i] == i - 1`). Parents come before their children;
    siblings are different tokens, in the order in which they are tried. `proposals[i]` is q of
    `tokens[i]`; None means one-hot (a deterministic draft). `confidence[i]` estimates the
    probability that `tokens[i]` is accepted given that its predecessors are. `source` is the
    drafter's name; `sources[i]` that of the one that proposed `tokens[i]`, where several did.
    """

    tokens: tuple[int, ...] = ()
    parents: tuple[int, ...] | None = None
    proposals: tuple[Proposal, ...] | None = None
    confidence: tuple[float, ...] | None = None
    source: str = ""
    sources: tuple[str, ...] | None = None

    @property
    def depth(self) -> int:
        """Tokens of its longest path."""
        if self.parents is None:
            return len(self.tokens)
        return 1 + int(depths(self.parents).max()) if self.parents else 0

    @property
    def forks(self) -> bool:
        """Whether it is a tree that is no chain."""
        return self.parents is not None and not is_chain(self.parents)

    def source_of(self, index: int) -> str:
        """Who proposed `tokens[index]`."""
        return self.source if self.sources is None else self.sources[index]

    def first(self, length: int) -> Draft:
        """The chain's first `length` tokens."""
        return Draft(
            tokens=self.tokens[:length],
            proposals=None if self.proposals is None else self.proposals[:length],
            confidence=None if self.confidence is None else self.confidence[:length],
            source=self.source,
            sources=None if self.sources is None else self.sources[:length],
        )

    def only(self, nodes: Sequence[int]) -> Draft:
        """Reduced to `nodes`, none without the token it follows, their order kept; a chain where
        that leaves no fork."""
        if len(nodes) == len(self.tokens):
            return self
        if self.parents is None:
            assert max(nodes, default=-1) < len(nodes), "a chain is cut behind some token"
            return self.first(len(nodes))
        kept = sorted(nodes)
        place = {node: index for index, node in enumerate(kept)} | {-1: -1}
        parents: tuple[int, ...] | None = tuple(place[self.parents[node]] for node in kept)
        if parents == tuple(range(-1, len(kept) - 1)):
            parents = None
        proposals, confidence, sources = self.proposals, self.confidence, self.sources
        return Draft(
            tokens=tuple(self.tokens[node] for node in kept),
            parents=parents,
            proposals=None if proposals is None else tuple(proposals[node] for node in kept),
            confidence=None if confidence is None else tuple(confidence[node] for node in kept),
            source=self.source,
            sources=None if sources is None else tuple(sources[node] for node in kept),
        )


EMPTY = Draft()
"""Nothing is proposed."""


Later = Callable[..., None]
"""`later(function, *arguments)` has `function` called, now or soon, in the order of such calls."""


def at_once(function: Callable[..., None], *arguments: Any) -> None:
    """Of all `Later` the soonest."""
    function(*arguments)


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


class LearningDrafter(Drafter, Protocol):
    """One that learns from what became of its drafts."""

    def commit(self, tokens: Sequence[int], later: Later = at_once) -> None:
        """The same; what is learnt of it may be learnt `later`."""
