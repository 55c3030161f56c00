"""Parts of a draft that may be verified without the rest: of every size the most promising."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple


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
