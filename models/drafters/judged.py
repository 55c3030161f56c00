"""A draft with what its drafter thinks of it, until the target has said what it thinks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from models.draft import Draft
from models.drafters.calibration import Curve


class JudgedChain(NamedTuple):
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
        return self.curve.estimates(self.probabilities)

    def learn(self, said: Sequence[int]) -> None:
        told = zip(self.tokens, self.probabilities, said, strict=False)
        for depth, (token, probability, right) in enumerate(told):
            self.curve.observe(probability, depth, token == right)
            if token != right or not self.certain:
                return


@dataclass(slots=True)
class Node:
    """A token of a tree.

    `probability` is the drafter's, `confidence` what it is judged to be worth, both given that the
    parent is right; `rank` its place among all that the drafter could say there, 0 the likeliest.
    """

    token: int
    rank: int
    probability: float
    confidence: float
    children: list[Node] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class TreeCurves:
    """The likeliest token at a place is judged by `first`, the others by `other`.

    `certain` as for chains.
    """

    first: Curve
    other: Curve
    certain: bool = True

    def of(self, rank: int) -> Curve:
        return self.other if rank else self.first

    def judge(self, tokens: Sequence[int], shares: Sequence[float], depth: int) -> list[Node]:
        """Siblings, likeliest first. The target says one of them at most, so their confidences sum
        to at most 1."""
        nodes, left = [], 1.0
        for rank, (token, share) in enumerate(zip(tokens, shares, strict=True)):
            confidence = min(left, self.of(rank).estimate(share, depth))
            left -= confidence
            nodes.append(Node(token, rank, share, confidence))
        return nodes


class JudgedTree:
    """The taken nodes, siblings in the order in which they are tried."""

    def __init__(self, roots: list[Node], curves: TreeCurves) -> None:
        self.roots = roots
        self._curves = curves

    def draft(self, source: str) -> Draft:
        """Every path's first branch right behind it: so the branch that is most often right needs
        no compaction. Without a fork it is a chain."""
        nodes: list[Node] = []
        parents: list[int] = []
        waiting = [(node, -1) for node in reversed(self.roots)]
        while waiting:
            node, parent = waiting.pop()
            waiting += [(child, len(nodes)) for child in reversed(node.children)]
            nodes.append(node)
            parents.append(parent)
        forked = parents != list(range(-1, len(nodes) - 1))
        return Draft(
            tokens=tuple([node.token for node in nodes]),
            parents=tuple(parents) if forked else None,
            confidence=tuple([node.confidence for node in nodes]),
            source=source,
        )

    def learn(self, said: Sequence[int]) -> None:
        """Along the target's own path through the tree."""
        siblings, curves = self.roots, self._curves
        for depth, right in enumerate(said):
            found: Node | None = None
            for node in siblings:
                accepted = node.token == right
                curves.of(node.rank).observe(node.probability, depth, accepted)
                if accepted:
                    found = node
                    break
            if found is None or not curves.certain:
                return
            siblings = found.children
