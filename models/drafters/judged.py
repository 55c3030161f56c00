"""A draft with what its drafter thinks of it, until the target has said what it thinks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from models.draft import Draft
from models.drafters.calibration import Curve


@dataclass(frozen=True, slots=True)
class JudgedChain:
    """Tokens in a row with the probabilities that they were judged by.

    `certain`: what the target says at a place settles whether the token there would have been
    accepted, verified or not. Not so where acceptance is drawn: there only the first token is
    learnt from, which is verified whenever anything is.
    """

    tokens: Sequence[int]
    probabilities: Sequence[float]
    curve: Curve
    certain: bool = True

    def confidence(self) -> tuple[float, ...]:
        estimate = self.curve.estimate
        return tuple([estimate(value, depth) for depth, value in enumerate(self.probabilities)])

    def learn(self, said: Sequence[int]) -> None:
        told = zip(self.tokens, self.probabilities, said, strict=False)
        for depth, (token, probability, right) in enumerate(told):
            self.curve.observe(probability, depth, token == right)
            if token != right or not self.certain:
                return


@dataclass(slots=True)
class Node:
    """A token of a tree. `probability` is the drafter's, given that the parent is right."""

    token: int
    probability: float
    children: list[Node]


class JudgedTree:
    """Siblings in the order in which they are tried, most likely first.

    The first at a place is judged by `first`, the others by `other`. The target says one of them at
    most, so their confidences sum to at most 1.
    """

    def __init__(self, roots: list[Node], first: Curve, other: Curve, *, certain: bool) -> None:
        self._roots = roots
        self._curves = (first, other)
        self._certain = certain

    def draft(self, source: str) -> Draft:
        """Every path's first branch right behind it: so the branch that is most often right needs
        no compaction. Without a fork it is a chain."""
        tokens: list[int] = []
        parents: list[int] = []
        confidence: list[float] = []
        waiting = self._waiting(self._roots, -1, 0)
        while waiting:
            node, parent, depth, value = waiting.pop()
            waiting += self._waiting(node.children, len(tokens), depth + 1)
            tokens.append(node.token)
            parents.append(parent)
            confidence.append(value)
        forked = parents != list(range(-1, len(tokens) - 1))
        return Draft(
            tokens=tuple(tokens),
            parents=tuple(parents) if forked else None,
            confidence=tuple(confidence),
            source=source,
        )

    def learn(self, said: Sequence[int]) -> None:
        """Along the target's own path through the tree."""
        siblings = self._roots
        for depth, right in enumerate(said):
            found: Node | None = None
            for rank, node in enumerate(siblings):
                accepted = node.token == right
                self._curves[rank > 0].observe(node.probability, depth, accepted)
                if accepted:
                    found = node
                    break
            if found is None or not self._certain:
                return
            siblings = found.children

    def _waiting(
        self, siblings: list[Node], parent: int, depth: int
    ) -> list[tuple[Node, int, int, float]]:
        """In reverse, as they are to be popped."""
        judged, left = [], 1.0
        for rank, node in enumerate(siblings):
            value = min(left, self._curves[rank > 0].estimate(node.probability, depth))
            left -= value
            judged.append((node, parent, depth, value))
        judged.reverse()
        return judged
