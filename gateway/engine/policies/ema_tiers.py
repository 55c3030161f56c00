"""Policy `ema-tiers`: the draft length follows a running mean of what was accepted.

The adaptive mode of SGLang (its documentation, "Adaptive speculative decoding"; its defaults for
the weight, the pace and the thresholds), kept for each request.
"""

from __future__ import annotations

from collections.abc import Sequence

from gateway.engine.policies.fixed import FixedPolicy
from models.draft import Draft
from models.drafters.survival import followed

TIERS = (1, 3, 7)
"""Draft lengths to choose from."""

_FIRST = 1
_WEIGHT = 0.2
_WARM_UP, _EVERY = 10, 5
"""Rounds before the first decision, and between two."""

_BELOW = 0.75
"""A tier is left for the one below where the mean is so much below that one's length."""

_ABOVE = 0.5
"""A tier is left for the one above where the mean is less than this below its own length."""


class EmaTiersPolicy(FixedPolicy):
    """Rounds without a draft teach nothing. A request's `length` bounds every tier."""

    name = "ema-tiers"

    def __init__(self, length: int | None) -> None:
        super().__init__(length)
        self._tier = _FIRST
        self._mean = TIERS[_FIRST] - 1.0
        self._rounds = 0

    @property
    def tier(self) -> int:
        """Draft tokens of a round by now."""
        return TIERS[self._tier]

    def budget(self, room: int) -> int:
        return min(super().budget(room), self.tier)

    def observe(self, draft: Draft, said: Sequence[int]) -> None:
        if not draft.tokens:
            return
        accepted = sum(outcome.right for outcome in followed(draft, said))
        self._mean += _WEIGHT * (accepted - self._mean)
        self._rounds += 1
        if self._rounds > _WARM_UP and (self._rounds - _WARM_UP) % _EVERY == 0:
            self._move()

    def _move(self) -> None:
        before = self._tier
        while self._tier > 0 and self._mean <= TIERS[self._tier - 1] - _BELOW:
            self._tier -= 1
        if self._tier < before:
            return
        while self._tier < len(TIERS) - 1 and self._mean > TIERS[self._tier] - _ABOVE:
            self._tier += 1
