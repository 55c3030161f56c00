"""The drafts of several drafters as one tree."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

from models.draft import Draft


@dataclass(slots=True)
class _Node:
    """A token, who proposed it, and the probability that it is accepted if its parent is."""

    token: int
    source: str
    confidence: float
    children: dict[int, _Node] = field(default_factory=dict)
    taken: bool = False


def union(first: Draft, second: Draft, budget: int) -> Draft:
    """Both drafts as one, their common beginnings shared: the `budget` likeliest tokens.

    What both propose counts for `first`, with the confidence of the surer one. Where they disagree
    the surer one keeps its confidence and the other shares what that leaves, so that siblings'
    confidences still sum to at most 1. Drafts that were drawn (`proposals`) are not merged: which
    of them is tried first would depend on what was drawn.
    """
    assert first.proposals is None, "drawn drafts are not merged"
    assert second.proposals is None, "drawn drafts are not merged"
    root = _Node(-1, "", 1.0)
    root.children = _merged(_children(first, -1), _children(second, -1))
    _take(root, budget)
    return _flat(root)


def _children(draft: Draft, parent: int) -> dict[int, _Node]:
    """The tree below `parent`, by token; a chain is a tree of one branch."""
    parents = draft.parents or tuple(range(-1, len(draft.tokens) - 1))
    confidence = draft.confidence or (1.0,) * len(parents)
    nodes = [
        _Node(token, draft.source_of(index), confidence[index])
        for index, token in enumerate(draft.tokens)
    ]
    roots: dict[int, _Node] = {}
    for node, above in zip(nodes, parents, strict=True):
        (roots if above == parent else nodes[above].children)[node.token] = node
    return roots


def _merged(first: dict[int, _Node], second: dict[int, _Node]) -> dict[int, _Node]:
    """Siblings of both, in the order in which they are tried: the surer draft's come first."""
    if not first or not second:
        return first or second
    surer, other = first, second
    if _surest(second) > _surest(first):
        surer, other = second, first
    left = max(0.0, 1.0 - sum(node.confidence for node in surer.values()))
    merged: dict[int, _Node] = {}
    for token, node in surer.items():
        children, source = node.children, node.source
        if token in other:
            children = _merged(first[token].children, second[token].children)
            source = first[token].source
        merged[token] = _Node(token, source, node.confidence, children)
    for token, node in other.items():
        if token not in merged:
            merged[token] = _Node(token, node.source, left * node.confidence, node.children)
    return merged


def _surest(siblings: dict[int, _Node]) -> float:
    return max(node.confidence for node in siblings.values())


def _take(root: _Node, budget: int) -> None:
    """Mark the likeliest tokens, best first: a parent is never less likely than its child."""
    order = 0
    waiting: list[tuple[float, int, _Node]] = []

    def offer(parent: _Node, survival: float) -> None:
        nonlocal order
        for node in parent.children.values():
            heapq.heappush(waiting, (-survival * node.confidence, order, node))
            order += 1

    offer(root, 1.0)
    for _ in range(budget):
        if not waiting:
            return
        survival, _, node = heapq.heappop(waiting)
        node.taken = True
        offer(node, -survival)


def _flat(root: _Node) -> Draft:
    """The taken nodes, every path's first branch right behind it: it needs no compaction."""
    nodes: list[_Node] = []
    parents: list[int] = []
    waiting = [(node, -1) for node in reversed(root.children.values()) if node.taken]
    while waiting:
        node, parent = waiting.pop()
        below = [child for child in node.children.values() if child.taken]
        waiting += [(child, len(nodes)) for child in reversed(below)]
        nodes.append(node)
        parents.append(parent)
    sources = tuple(node.source for node in nodes)
    return Draft(
        tokens=tuple(node.token for node in nodes),
        parents=None if parents == list(range(-1, len(nodes) - 1)) else tuple(parents),
        confidence=tuple(node.confidence for node in nodes),
        source=sources[0] if sources else "",
        sources=sources,
    )
