"""A tree draft: the continuations of several earlier occurrences, merged where they agree."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from models.draft import Draft
from models.drafters.acceptance import CopyConfidence, Support


class Occurrence(NamedTuple):
    """What follows from `start` on is copied; the `matched` tokens before it end the text."""

    start: int
    matched: int


@dataclass(slots=True)
class Node:
    """A token that `occurrences`, the best first, go on with behind the path to its parent.

    `confidence` is the probability that it is accepted given that its parent is, `survival` that
    of the whole path. `taken` nodes are proposed; the others were only judged.
    """

    token: int
    before: int
    matched: int
    support: Support
    confidence: float
    survival: float
    occurrences: list[Occurrence]
    children: list[Node]
    taken: bool = False


Judge = Callable[[int, int, int, int], Support]
"""Support of a token: (second last token, last token, token, length of the match)."""


class Trie:
    """Grows best first, by path survival.

    Siblings are different tokens, in the order of their best occurrences. The target says one of
    them at most: their confidences sum to at most 1, and none of them depends on which others are
    taken.
    """

    def __init__(self, tokens: Sequence[int], judge: Judge, confidence: CopyConfidence) -> None:
        self._tokens = tokens
        self._end = len(tokens)
        self._judge = judge
        self._confidence = confidence
        self._roots: list[Node] = []

    def grow(self, occurrences: list[Occurrence], budget: int) -> None:
        """Take the `budget` most likely nodes; `occurrences` are in order of preference."""
        tokens = self._tokens
        before = tokens[-2] if self._end > 1 else -1
        self._roots = self._children(occurrences, before, tokens[-1], 0, 1.0)
        waiting = [(-node.survival, order, 0, node) for order, node in enumerate(self._roots)]
        heapq.heapify(waiting)
        order = len(waiting)
        for left in range(budget - 1, -1, -1):
            if not waiting:
                return
            _, _, depth, node = heapq.heappop(waiting)
            node.taken = True
            if left == 0:
                return
            node.children = self._children(
                node.occurrences, node.before, node.token, depth + 1, node.survival
            )
            for child in node.children:
                heapq.heappush(waiting, (-child.survival, order, depth + 1, child))
                order += 1

    def draft(self, source: str) -> Draft:
        """The taken nodes, every path's most preferred branch right behind it.

        So the branch that is most often right needs no compaction. Without a fork it is a chain.
        """
        nodes: list[Node] = []
        parents: list[int] = []
        waiting = [(node, -1) for node in reversed(self._roots) if node.taken]
        while waiting:
            node, parent = waiting.pop()
            waiting += [(child, len(nodes)) for child in reversed(node.children) if child.taken]
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
        """Compare with what the target said, along its own path through the tree."""
        siblings = self._roots
        for token in said:
            right: Node | None = None
            for rank, node in enumerate(siblings):
                accepted = node.token == token
                self._confidence.observe(node.matched, node.support, accepted, rank)
                if accepted:
                    right = node
                    break
            if right is None:
                return
            siblings = right.children

    def _children(
        self, occurrences: list[Occurrence], before: int, last: int, depth: int, survival: float
    ) -> list[Node]:
        """What `occurrences` have `depth` tokens on; past the end they repeat themselves."""
        following: dict[int, list[Occurrence]] = {}
        for occurrence in occurrences:
            start = occurrence.start
            token = self._tokens[start + depth % (self._end - start)]
            following.setdefault(token, []).append(occurrence)
        nodes: list[Node] = []
        left = 1.0
        for rank, (token, those) in enumerate(following.items()):
            matched = those[0].matched + depth
            support = self._judge(before, last, token, matched)
            confidence = left * self._confidence.estimate(matched, support, rank)
            left -= confidence
            nodes.append(
                Node(token, last, matched, support, confidence, survival * confidence, those, [])
            )
        return nodes
