"""How far a drafter's drafts are accepted, learnt from outcomes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from models.draft import Draft

UNMEASURED = 0.6
"""The share of a drafter's tokens taken for accepted where nothing is known of it."""


class Prior(Protocol):
    """What is believed before there are outcomes of one's own."""

    def accepted(self, depth: int) -> float:
        """The probability that the token at `depth` (0 the first) is accepted, given that those
        before it are."""

    def observe(self, draft: Draft, said: Sequence[int]) -> None:
        """Compare a draft with what the target said there, verified or not."""


class Published:
    """Shares measured at export, as survival by depth; the last goes on."""

    def __init__(self, survival: Sequence[float] = ()) -> None:
        before = (1.0, *survival)
        self._accepted = [
            min(1.0, now / earlier) if earlier > 0 else 0.0
            for earlier, now in zip(before, survival, strict=False)
        ] or [UNMEASURED]

    def accepted(self, depth: int) -> float:
        return self._accepted[min(depth, len(self._accepted) - 1)]

    def observe(self, draft: Draft, said: Sequence[int]) -> None:
        """What was measured stays what it is."""


class Survival:
    """Estimates by depth: they begin as a prior worth `weight` outcomes; all fade by `memory`.

    The prior hears of every outcome, so that what one request teaches is the next one's prior. A
    tree's token at a depth is accepted where any of those that follow the path so far is right.
    """

    def __init__(self, prior: Prior, weight: float, memory: float) -> None:
        self._prior = prior
        self._weight = weight
        self._memory = memory
        self._right: list[float] = []
        self._tried: list[float] = []

    def accepted(self, depth: int) -> float:
        if depth >= len(self._tried):
            return self._prior.accepted(depth)
        return self._right[depth] / self._tried[depth]

    def expected(self, length: int) -> float:
        """Accepted tokens to expect of a draft of `length`: the sum of the survivals s_i."""
        total, survival = 0.0, 1.0
        for depth in range(length):
            survival *= self.accepted(depth)
            total += survival
        return total

    def shares(self, length: int) -> tuple[float, ...]:
        """Survival s_i by depth."""
        survival, shares = 1.0, list[float]()
        for depth in range(length):
            survival *= self.accepted(depth)
            shares.append(survival)
        return tuple(shares)

    def observe(self, draft: Draft, said: Sequence[int]) -> None:
        for depth, right in enumerate(outcomes(draft, said)):
            self._note(depth, right)
        self._prior.observe(draft, said)

    def _note(self, depth: int, right: bool) -> None:
        if depth == len(self._tried):
            self._tried.append(self._weight)
            self._right.append(self._weight * self._prior.accepted(depth))
        self._tried[depth] = self._tried[depth] * self._memory + 1.0
        self._right[depth] = self._right[depth] * self._memory + right


def outcomes(draft: Draft, said: Sequence[int]) -> list[bool]:
    """By depth, as far as the target followed `draft`: whether its next token was among it."""
    parents = draft.parents or range(-1, len(draft.tokens) - 1)
    following: dict[int, dict[int, int]] = {}
    for index, (token, parent) in enumerate(zip(draft.tokens, parents, strict=True)):
        following.setdefault(parent, {})[token] = index
    found: list[bool] = []
    node = -1
    for token in said:
        children = following.get(node)
        if children is None:
            break
        found.append(token in children)
        if not found[-1]:
            break
        node = children[token]
    return found


def expected_tokens(draft: Draft) -> float:
    """Accepted tokens to expect by the draft's own confidence; without it every token is believed.

    The sum over its tokens of the probability that the path up to them is accepted.
    """
    parents = draft.parents or range(-1, len(draft.tokens) - 1)
    survival: list[float] = []
    for parent, confidence in zip(parents, draft.confidence or (1.0,) * len(parents), strict=True):
        survival.append(confidence if parent < 0 else survival[parent] * confidence)
    return sum(survival)
