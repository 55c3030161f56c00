"""Policies that verify whatever is drafted: `fixed` and `adasd`."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.engine.costs.shape import Load
from gateway.engine.policies.base import Candidate, Drafting, Plan, most_expected
from gateway.engine.policies.offers import Offer, whole
from models.draft import Draft


class FixedPolicy(Drafting):
    """Asks for the same number of tokens in every round, and verifies all that it gets."""

    name = "fixed"

    def plan(
        self, free: Draft, learned: Sequence[Candidate], load: Load, budget: int
    ) -> Plan | None:
        return most_expected(free, learned, budget)

    def offer(self, draft: Draft, load: Load) -> Offer:
        return whole(draft)


class AdasdPolicy(FixedPolicy):
    """Drafts as far as it may; rule `adasd`, which it goes with, ends a draft where the drafter's
    entropy says that it guesses, and accepts by Jensen-Shannon distance (AdaSD). Lossy."""

    name = "adasd"


class OffPolicy(FixedPolicy):
    """Decodes plainly."""

    name = "off"

    def budget(self, room: int) -> int:
        return 0
