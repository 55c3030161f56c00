"""What a request offers the run that its row joins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from models.draft import EMPTY, Draft
from models.rows import Row
from models.slots import Slot


@dataclass(frozen=True, slots=True)
class Need:
    """A target for the mean time per token: `tokens` of the answer took `elapsed_ms` so far."""

    tpot_ms: float
    elapsed_ms: float
    tokens: int

    def expected_tokens(self, round_ms: float) -> float:
        """E[tau] with which a round that takes `round_ms` from now on keeps the target."""
        return (self.elapsed_ms + round_ms) / self.tpot_ms - self.tokens


@dataclass(slots=True)
class Offer:
    """A draft of which the run takes as much as pays for all of its rows together.

    `order` are the draft's tokens in the order in which they are worth a place, each after those
    it follows, and `worth` their path survivals, which never rise. The first `least` are verified
    whatever they cost. `tree`: in that order they are no chain.
    """

    draft: Draft = EMPTY
    order: Sequence[int] = ()
    worth: Sequence[float] = ()
    least: int = 0
    tree: bool = False
    need: Need | None = None

    @property
    def drawn(self) -> bool:
        """Whether the tokens were drawn, and are verified by what they were drawn from: whether one
        is verified may then not depend on which it is."""
        return self.draft.proposals is not None and self.draft.parents is None

    def first(self, count: int) -> Draft:
        """The draft with the first `count` of `order` alone."""
        return self.draft.only(self.order[:count])


NOTHING = Offer()
"""Plain decoding."""


def whole(draft: Draft) -> Offer:
    """All of `draft`, whatever it costs."""
    order = range(len(draft.tokens))
    return Offer(draft, order, (1.0,) * len(order), len(order), draft.parents is not None)


def make_row(slot: Slot, token: int, draft: Draft) -> Row:
    """The last committed token comes first, and the draft tokens one place later than in it."""
    tokens, parents = (token, *draft.tokens), draft.parents
    if parents is not None:
        parents = (-1, *(parent + 1 for parent in parents))
    return Row(slot, tokens, logits=len(tokens), parents=parents)
