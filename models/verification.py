"""Verification: which tokens of a draft the target would have said itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Outcome:
    """Length of the accepted prefix, and the token the target adds to the round."""

    accepted: int
    bonus: int

    def tokens(self, draft: Sequence[int]) -> tuple[int, ...]:
        """The tokens the round advances by: the accepted prefix, then the bonus token."""
        return (*draft[: self.accepted], self.bonus)


def accept_greedy(draft: Sequence[int], target: Sequence[int]) -> Outcome:
    """Greedy verification of a chain (temperature 0 of the coupled rule).

    `target[i]` is the target's token after the last committed token and `draft[:i]`, so it has
    one more entry than `draft`. A draft token is accepted when it is that token; the bonus is the
    target's token after the accepted prefix (Leviathan et al., arXiv 2211.17192, at T = 0).
    """
    assert len(target) == len(draft) + 1, "one target token per draft token, and the bonus"
    accepted = 0
    while accepted < len(draft) and draft[accepted] == target[accepted]:
        accepted += 1
    return Outcome(accepted=accepted, bonus=target[accepted])
