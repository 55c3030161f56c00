"""Parts of a draft that may be verified without the rest: of every size the most promising."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from models.draft import Draft


class Part(NamedTuple):
    """Draft tokens to verify, and E[tau] with them: 1 + the sum of their path survivals."""

    nodes: Sequence[int]
    expected: float
    tree: bool = False


def survivals(confidence: Sequence[float], parents: Sequence[int] | None) -> list[float]:
    """Of every token the probability that the path up to it is accepted; `confidence` are those
    that it is where the tokens before it are."""
    if parents is None:
        return list(accumulate(confidence, operator.mul))
    found: list[float] = []
    for parent, each in zip(parents, confidence, strict=True):
        found.append(each if parent < 0 else found[parent] * each)
    return found


def likeliest(survival: Sequence[float]) -> list[int]:
    """Tokens by falling survival. Nothing survives what it follows, so that comes first."""
    return sorted(range(len(survival)), key=lambda node: -survival[node])


def parts(parents: Sequence[int], survival: Sequence[float]) -> Iterator[Part]:
    """Of every size the part of a tree of most expected tokens: as a chain, and with forks."""
    yield from _chains(parents, survival)
    order = likeliest(survival)
    for size, expected in enumerate(accumulate([survival[n] for n in order], initial=1.0)):
        yield Part(order[:size], expected, tree=True)


def cut(draft: Draft, nodes: Sequence[int]) -> Draft:
    """`draft` reduced to `nodes`, their order kept; a chain where that leaves no fork."""
    if len(nodes) == len(draft.tokens):
        return draft
    kept = sorted(nodes)
    if draft.parents is None:
        assert kept == list(range(len(kept))), "a chain is cut behind some token"
        return draft.first(len(kept))
    place = {node: index for index, node in enumerate(kept)} | {-1: -1}
    parents: tuple[int, ...] | None = tuple(place[draft.parents[node]] for node in kept)
    if parents == tuple(range(-1, len(kept) - 1)):
        parents = None
    proposals, confidence, sources = draft.proposals, draft.confidence, draft.sources
    return Draft(
        tokens=tuple(draft.tokens[node] for node in kept),
        parents=parents,
        proposals=None if proposals is None else tuple(proposals[node] for node in kept),
        confidence=None if confidence is None else tuple(confidence[node] for node in kept),
        source=draft.source,
        sources=None if sources is None else tuple(sources[node] for node in kept),
    )


def _chains(parents: Sequence[int], survival: Sequence[float]) -> Iterator[Part]:
    """For every depth, the path to it of most expected tokens."""
    paths: list[tuple[int, ...]] = []
    expected: list[float] = []
    best: dict[int, int] = {}
    for node, parent in enumerate(parents):
        paths.append((*(paths[parent] if parent >= 0 else ()), node))
        expected.append((expected[parent] if parent >= 0 else 1.0) + survival[node])
        rival = best.setdefault(len(paths[node]), node)
        if expected[node] > expected[rival]:
            best[len(paths[node])] = node
    for node in best.values():
        yield Part(paths[node], expected[node])
