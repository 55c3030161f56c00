"""What a policy is, and what it chooses from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from gateway.engine.costs.draft_costs import DraftCosts
from gateway.engine.costs.shape import Load
from gateway.engine.policies.offers import Offer
from models.draft import Draft
from models.drafters.survival import Survival, expected_tokens

LONGEST_DRAFT = 16
"""Draft tokens per round at most, where a request does not say."""


@dataclass(slots=True)
class Probation:
    """The time that may be spent on a drafter that does not pay, in all requests together: a share
    of what the target's runs take."""

    credit_ms: float = 0.0

    def allows(self, price_ms: float, earned_ms: float) -> bool:
        """Earn, and spend `price_ms` if that is there; no more than that is ever saved."""
        self.credit_ms = min(self.credit_ms + earned_ms, price_ms)
        if self.credit_ms < price_ms:
            return False
        self.credit_ms = 0.0
        return True


@dataclass(frozen=True, slots=True)
class Candidate:
    """A learned drafter: how far it drafts at most, what that costs, and what is accepted of it.

    With `tree` a draft of any number of tokens reaches as deep as it can.
    """

    name: str
    longest: int
    costs: DraftCosts
    survival: Survival
    tree: bool = False
    probation: Probation = field(default_factory=Probation)

    def most(self, budget: int) -> int:
        """The tokens to ask for where `budget` may be."""
        return budget if self.tree else min(budget, self.longest)

    def expected(self, budget: int) -> float:
        """Accepted tokens to expect of a draft of `budget` tokens."""
        return self.survival.expected(min(budget, self.longest))


class Plan(NamedTuple):
    """The learned drafter to run and the tokens to ask of it."""

    name: str
    budget: int


class Policy(Protocol):
    """Decides for one request, round by round. What became of its drafts is told to `observe`."""

    @property
    def name(self) -> str: ...

    def budget(self, room: int) -> int:
        """Draft tokens to ask for when `room` fit into the answer and the slot."""

    def plan(
        self, free: Draft, learned: Sequence[Candidate], load: Load, budget: int
    ) -> Plan | None:
        """The learned drafter that is worth its run where `free` is proposed anyway, if any is.

        `load` is what shares the run: its streams wait for this draft as this request does for
        theirs.
        """

    def offer(self, draft: Draft, load: Load) -> Offer:
        """What of `draft` the run that takes it may verify, and what each token is worth."""

    def observe(self, draft: Draft, said: Sequence[int]) -> None:
        """`said` are the tokens that a round added for which `draft` was proposed."""


class Drafting:
    """What policies that draft have in common."""

    def __init__(self, length: int | None) -> None:
        self._limit = LONGEST_DRAFT if length is None else length

    def budget(self, room: int) -> int:
        return max(0, min(self._limit, room))

    def observe(self, draft: Draft, said: Sequence[int]) -> None:
        """Nothing is learnt."""


def most_expected(free: Draft, learned: Sequence[Candidate], budget: int) -> Plan | None:
    """The learned drafter of most expected tokens, whatever it costs, unless `free` has more."""
    if budget <= 0 or not learned:
        return None
    best = learned[0]
    if len(learned) > 1:
        best = max(learned, key=lambda each: each.expected(budget))
    if free.tokens and best.expected(budget) <= expected_tokens(free):
        return None
    return Plan(best.name, best.most(budget))
