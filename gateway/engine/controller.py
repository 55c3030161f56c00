"""How much of a draft a round verifies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from gateway.engine.costs import RunCosts
from gateway.engine.requests import Speculation
from models.draft import Draft

LONGEST_DRAFT = 16
"""Draft tokens per round at most, where a request does not say."""

_LEAST_GAIN = 1.03
"""A draft that makes the run dearer must promise this much, so that noise never decides for it."""


class Controller:
    """Chooses what to draft and to verify for one request.

    `auto` maximises expected tokens per millisecond, E[tau] / T(width), from the drafter's
    confidence in each token and the measured cost of a run; plain decoding (no draft) is one of
    the candidates. `fixed` always asks for the same number of tokens, `off` for none.
    """

    def __init__(self, speculation: Speculation, costs: RunCosts) -> None:
        self._policy = speculation.policy if speculation.drafter != "off" else "off"
        self._costs = costs
        self._limit = LONGEST_DRAFT if speculation.length is None else speculation.length

    @property
    def policy(self) -> str:
        return self._policy

    def budget(self, room: int) -> int:
        """Draft tokens to ask the drafter for when `room` fit into the answer and the slot."""
        return 0 if self._policy == "off" else max(0, min(self._limit, room))

    def select(self, draft: Draft, others: int) -> Draft:
        """The part of `draft` to verify, every token with those it follows, their order kept.

        `others` are the tokens that share the run. A draft without confidence is believed. Where
        tokens were drawn (`draft.proposals`) and rule `classic` verifies them, the choice is only
        lossless if `confidence[i]` does not depend on which token was drawn at i.
        """
        if self._policy != "auto":
            return draft
        plain = self._costs.predict(others + 1)
        best, best_gain = _Part((), 1.0), 1.0
        for part in _parts(draft):
            cost = self._costs.predict(others + 1 + len(part.nodes), part.tree)
            gain = part.expected * plain / cost
            # A lone token is padded to a run of two: the first draft token of a stream that is
            # alone is free, and needs no margin.
            if gain > best_gain and (cost <= plain or gain >= _LEAST_GAIN):
                best, best_gain = part, gain
        return _cut(draft, best.nodes)


class _Part(NamedTuple):
    """Draft tokens to verify, and E[tau] with them: 1 + the sum of their path survivals."""

    nodes: Sequence[int]
    expected: float
    tree: bool = False


def _parts(draft: Draft) -> Iterator[_Part]:
    """Of every size the part of most expected tokens: as a chain, and where there are forks."""
    parents = draft.parents or range(-1, len(draft.tokens) - 1)
    survival: list[float] = []
    for parent, confidence in zip(parents, draft.confidence or (1.0,) * len(parents), strict=True):
        survival.append(confidence if parent < 0 else survival[parent] * confidence)
    if draft.parents is None:
        for size, expected in enumerate(accumulate(survival, initial=1.0)):
            yield _Part(range(size), expected)
        return
    yield from _chains(parents, survival)
    # Nothing survives its parent, so the likeliest tokens always have theirs among them.
    likeliest = sorted(range(len(survival)), key=lambda node: -survival[node])
    for size, expected in enumerate(accumulate([survival[n] for n in likeliest], initial=1.0)):
        yield _Part(likeliest[:size], expected, tree=True)


def _chains(parents: Sequence[int], survival: Sequence[float]) -> Iterator[_Part]:
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
        yield _Part(paths[node], expected[node])


def _cut(draft: Draft, nodes: Sequence[int]) -> Draft:
    """`draft` reduced to `nodes`; a chain where that leaves no fork."""
    if len(nodes) == len(draft.tokens):
        return draft
    kept = sorted(nodes)
    parents: tuple[int, ...] | None = None
    if draft.parents is not None:
        place = {node: index for index, node in enumerate(kept)} | {-1: -1}
        parents = tuple(place[draft.parents[node]] for node in kept)
        if parents == tuple(range(-1, len(kept) - 1)):
            parents = None
    proposals, confidence = draft.proposals, draft.confidence
    return Draft(
        tokens=tuple(draft.tokens[node] for node in kept),
        parents=parents,
        proposals=None if proposals is None else tuple(proposals[node] for node in kept),
        confidence=None if confidence is None else tuple(confidence[node] for node in kept),
        source=draft.source,
    )
