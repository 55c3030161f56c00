"""Self-speculation: the target with layers left out drafts for itself (arXiv 2309.08168)."""

from __future__ import annotations

import numpy as np

from models.draft import Draft
from models.drafters.bound import Entries
from models.drafters.chain import ChainDrafter
from models.drafters.drawing import Drawing
from models.drafters.model import DrafterModel
from models.slots import Slot


class SelfSpeculativeDrafter(ChainDrafter):
    """Drafts a chain on the slot's own K/V of the layers it keeps.

    The target has made the entries of the committed tokens but the last, which is fed. What is
    written behind them the target's next run overwrites.
    """

    def __init__(self, model: DrafterModel, slot: Slot, drawing: Drawing | None) -> None:
        super().__init__(model, slot, drawing, model.graphs.steps)
        self._buffers = [slot.buffers[layer] for layer in model.spec.kept_layers]

    def _draft(self, budget: int) -> Draft:
        start = len(self._tokens) - 1
        steps = self._fitting(budget, start + 1)
        if steps == 0:
            return Draft(source=self.name)
        graphs, count = self._model.graphs, min(budget, steps)
        entries = Entries(np.array(self._tokens[-1:], dtype=np.int64), start)
        width = graphs.fixed_width(steps, entries)
        graph = graphs.chain(self._slot, self._buffers, steps, width)
        self._prepare(graph, count)
        graph.run(self._slot, entries)
        return self._drawn(graph, count)
