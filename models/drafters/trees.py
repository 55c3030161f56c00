"""Trees of a drafter's likeliest tokens: which of them are worth a place."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from models.drafters.bound import TreeGraph
from models.drafters.judged import Node, TreeCurves

_LEAST = 1e-9
"""Survival of a path that is not worth a look."""

ROOT = -1
"""The place of the last committed token."""

Below = Callable[[int], tuple[Sequence[int], Sequence[float], Sequence[int]] | None]
"""What a drafter says behind the token at a place: tokens, likeliest first, their shares, and their
places. None where it says nothing."""


def grow(below: Below, budget: int, branches: int, curves: TreeCurves) -> list[Node]:
    """The `budget` tokens that are likeliest to be reached and accepted, as far as they are judged;
    at most `branches` behind one. A parent is never less likely than its child."""
    roots: list[Node] = []
    waiting: list[tuple[float, int, int, Node, int, list[Node]]] = []
    order = 0

    def open_place(place: int, survival: float, depth: int, taken: list[Node]) -> None:
        nonlocal order
        said = below(place)
        if said is None:
            return
        tokens, shares, places = said
        judged = curves.judge(tokens[:branches], shares[:branches], depth)
        for node, own in zip(judged, places, strict=False):
            likely = survival * node.confidence
            if likely > _LEAST:
                # Of equal ones the one that was found first.
                heapq.heappush(waiting, (-likely, order, depth, node, own, taken))
                order += 1

    open_place(ROOT, 1.0, 0, roots)
    for _ in range(budget):
        if not waiting:
            break
        likely, _, depth, node, place, taken = heapq.heappop(waiting)
        taken.append(node)
        open_place(place, -likely, depth + 1, node.children)
    return roots


class GraphCandidates:
    """What a tree's graph found. A place is the number of a candidate, through the levels; only of
    those that became nodes it knows what comes next."""

    def __init__(self, graph: TreeGraph) -> None:
        width = self._width = graph.width
        self._ids: list[int] = graph.ids.tolist()
        self._scores: list[float] = graph.scores.tolist()
        # Where the candidates of each level begin.
        starts = [0, *(width + level * width * width for level in range(graph.depth - 1))]
        nodes = (graph.chosen[:-1] + np.array(starts[:-1], dtype=np.int64)[:, None]).ravel()
        self._rows = {ROOT: 0}
        for row, candidate in enumerate(nodes.tolist()):
            self._rows[candidate] = width + row * width

    def below(self, place: int) -> tuple[list[int], list[float], range] | None:
        start = self._rows.get(place)
        if start is None:
            return None
        end = start + self._width
        above = 0.0 if place == ROOT else self._scores[place]
        shares: list[float] = np.exp(np.array(self._scores[start:end]) - above).tolist()
        return self._ids[start:end], shares, range(start, end)


class Heads:
    """Heads that answer for the next places, whatever is said before: [heads, n] of each."""

    def __init__(self, ids: NDArray[np.int64], shares: NDArray[np.float32]) -> None:
        self._ids: list[list[int]] = ids.tolist()
        self._shares: list[list[float]] = shares.tolist()

    def below(self, place: int) -> tuple[list[int], list[float], list[int]] | None:
        """A place is the number of the head that spoke of it."""
        head = place + 1
        if head == len(self._ids):
            return None
        return self._ids[head], self._shares[head], [head] * len(self._ids[head])
