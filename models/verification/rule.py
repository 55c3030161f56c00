"""What a rule is: the choice at one node of a draft."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from models.draft import Draft, Proposal
from models.sampling.distribution import Distribution, Draw
from models.sampling.noise import Purpose, uniform


class Candidate(NamedTuple):
    """A draft token at a node: its place in the draft, the token, and q (None: one-hot)."""

    place: int
    token: int
    proposal: Proposal | None


class Choice(NamedTuple):
    """The child that was accepted and its token; or None and the token that ends the round."""

    child: int | None
    token: int


class Randomness(NamedTuple):
    """The random numbers of one position of one request."""

    seed: int
    position: int

    def token(self) -> Draw:
        """The target's own draw, which drafters may share."""
        return Draw(self.seed, self.position, Purpose.TOKEN)

    def residual(self) -> Draw:
        """What replaces rejected drafts: independent of everything that made them."""
        return Draw(self.seed, self.position, Purpose.RESIDUAL)

    def accept(self, sibling: int) -> float:
        """Uniform in (0, 1], for the candidate tried as number `sibling`."""
        return uniform(self.seed, self.position, Purpose.ACCEPT, sibling)


class Rule(Protocol):
    """Chooses at one node. `candidates` are tried in order; there may be none."""

    def choose(
        self, target: Distribution, candidates: Sequence[Candidate], randomness: Randomness
    ) -> Choice: ...

    def trim(self, draft: Draft) -> Draft:
        """The part of a draft that is worth verifying under this rule."""


class Untrimmed:
    """A rule that verifies whatever is drafted."""

    def trim(self, draft: Draft) -> Draft:
        return draft
