"""Which of many candidates become a tree to verify: the likeliest paths, as far as they go."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence

import numpy as np

from models.drafters.graphs import TreeGraph
from models.drafters.judged import Node

_IMPOSSIBLE = -50.0
"""Log-probability of a path that is not worth a look."""


def best_candidates(graph: TreeGraph, budget: int, branches: int) -> list[Node]:
    """The `budget` candidates of the highest cumulative log-probability, with at most `branches`
    of them behind one token; the tree's first tokens.

    A parent is never less likely than its child, and comes before it where they are equal.
    """
    width, first = graph.width, graph.width
    order = np.argsort(-graph.scores, kind="stable").tolist()
    ids, scores = graph.ids, graph.scores
    nodes: dict[int, Node] = {}
    roots: list[Node] = []
    # The candidate that the level's row r goes on from, numbered through the levels.
    starts = [0, *(first + level * width * width for level in range(graph.depth - 1))]
    chosen = (graph.chosen + np.array(starts)[:, None]).tolist()
    for candidate in order:
        score = float(scores[candidate])
        if len(nodes) == budget or score < _IMPOSSIBLE:
            break
        above, siblings = 0.0, roots
        if candidate >= first:
            level, place = divmod(candidate - first, width * width)
            parent = chosen[level][place // width]
            if parent not in nodes:
                continue
            above, siblings = float(scores[parent]), nodes[parent].children
        if len(siblings) < branches:
            nodes[candidate] = node = Node(int(ids[candidate]), math.exp(score - above), [])
            siblings.append(node)
    return roots


def best_products(
    ids: Sequence[Sequence[int]],
    probabilities: Sequence[Sequence[float]],
    budget: int,
    branches: int,
) -> list[Node]:
    """The `budget` likeliest paths through lists of tokens by depth, likeliest first, each token
    independent of those before it; at most `branches` behind one token."""
    roots: list[Node] = []
    waiting: list[tuple[float, int, int, int, list[Node]]] = []

    def offer(survival: float, depth: int, rank: int, siblings: list[Node]) -> None:
        if depth < len(ids) and rank < min(branches, len(ids[depth])):
            likely = survival * probabilities[depth][rank]
            # Of equal ones the one that was offered first.
            heapq.heappush(waiting, (-likely, offered[0], depth, rank, siblings))
            offered[0] += 1

    offered = [0]
    offer(1.0, 0, 0, roots)
    for _ in range(budget):
        if not waiting:
            break
        likely, _, depth, rank, siblings = heapq.heappop(waiting)
        probability = probabilities[depth][rank]
        node = Node(ids[depth][rank], probability, [])
        siblings.append(node)
        survival = -likely
        offer(survival / probability if probability > 0 else 0.0, depth, rank + 1, siblings)
        offer(survival, depth + 1, 0, node.children)
    return roots
