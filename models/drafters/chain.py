"""Drafters whose graph draws a chain of K tokens in one run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from models.draft import Draft, Proposal
from models.drafters.bound import ChainGraph
from models.drafters.drawing import Drawing, NoiseRows
from models.drafters.model import DrafterModel, LearnedDrafter
from models.memory import PAD_TOKENS
from models.slots import Slot

_ALL = 2.0
"""A top-p that truncates nothing."""


class ChainDrafter(LearnedDrafter):
    """What they have in common: the choice of a graph, its noise, and what it drew as a draft."""

    def __init__(
        self, model: DrafterModel, slot: Slot, drawing: Drawing | None, steps: Sequence[int]
    ) -> None:
        super().__init__(model, slot, drawing)
        assert steps, "there is a graph"
        self._steps = steps
        self._noise: NoiseRows | None = None

    def _fitting(self, budget: int, end: int) -> int:
        """The fewest steps that are enough for `budget`, of those for whose drafts there is room
        behind `end` entries; else the most; 0 where there is none."""
        room = self._context + PAD_TOKENS - end
        if self._steps[-1] - 1 <= room:
            return enough(self._steps, budget)
        fitting = [steps for steps in self._steps if steps - 1 <= room]
        return enough(fitting, budget) if fitting else 0

    def _prepare(self, graph: ChainGraph, count: int) -> None:
        """Have the graph draw the next `count` tokens as the request wants them drawn."""
        drawing = self._drawing
        if drawing is None or count == 0:
            silence = self._model.graphs.silence(graph.steps)
            graph.draw(silence, 1.0, _ALL, self._model.spec.top_k)
            return
        if self._noise is None:
            self._noise = NoiseRows(drawing, self._model.vocabulary, self._steps[-1])
        self._noise.place(len(self._tokens), count)
        noise = self._noise.first(graph.steps)
        graph.draw(noise, drawing.inverse_temperature, drawing.top_p, drawing.top_k)

    def _drawn(self, graph: ChainGraph, count: int) -> Draft:
        """What the last run drew, at most `count` tokens."""
        tokens = graph.ids[:count].tolist()
        if self._drawing is None:
            return self._likeliest(tokens, graph.values[:count, 0], graph.logsumexp[:count])
        rows = zip(graph.listed[:count], graph.weights[:count], strict=True)
        return self._sampled(tokens, [_proposal(*row) for row in rows])


def _proposal(listed: NDArray[np.int64], weights: NDArray[np.float32]) -> Proposal:
    """q as the graph drew from it: what it excluded has no weight, and comes last."""
    inside = int(np.count_nonzero(weights))
    exact = weights[:inside].astype(np.float64)
    return Proposal(listed[:inside].copy(), exact / np.add.reduce(exact))


def enough(steps: Sequence[int], budget: int) -> int:
    """The fewest that are at least `budget`, else the most there are; `steps` rise."""
    for count in steps:
        if count >= budget:
            return count
    return steps[-1]
