"""Drafters with K/V of their own: draft models, MTP modules, EAGLE heads."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from models.draft import Draft
from models.drafters.bound import Entries, modules
from models.drafters.chain import ChainDrafter, enough
from models.drafters.drawing import Drawing
from models.drafters.graphs import CHUNK
from models.drafters.model import DrafterModel
from models.drafters.state import DrafterState
from models.drafters.trees import GraphCandidates
from models.memory import PAD_TOKENS
from models.slots import Slot


class RecurrentDrafter(ChainDrafter):
    """Drafts a chain.

    Of a drafter that reads features, entry p is made of the feature at p and token p + 1, else of
    token p: after a proposal the K/V knows all committed tokens. Entries of accepted drafts are
    made again where they were made of the drafter's own guesses at features; those of a draft model
    are right already.
    """

    def __init__(self, model: DrafterModel, slot: Slot, drawing: Drawing | None) -> None:
        super().__init__(model, slot, drawing, model.graphs.steps)
        self._modules = modules(model.spec)
        self._state = _state_of(slot, model)
        self._ahead = int(model.spec.reads is not None)
        self._entries = 0
        self._written: tuple[int, ...] = ()

    def _draft(self, budget: int) -> Draft:
        steps = self._fitting(budget, len(self._tokens) - self._ahead)
        if steps == 0:
            return Draft(source=self.name)
        graphs, count = self._model.graphs, min(budget, steps)
        entries = self._catch_up()
        width = graphs.fixed_width(steps, entries)
        if width is not None:
            entries = self._between(entries.end - width, entries.end)
        graph = graphs.chain(self._slot, self._state.buffers, steps, width, entries.ids.size)
        self._prepare(graph, count)
        graph.run(self._slot, entries)
        self._note(entries)
        if not self._ahead:
            # The last one is drawn, not fed.
            self._written = tuple(graph.ids[:-1].tolist())
        return self._drawn(graph, count)

    def _settle(self, tokens: Sequence[int]) -> None:
        if self._entries:
            # The last committed token is always fed again: its logits are wanted.
            right = 0
            for written, token in zip(self._written, tokens[:-1], strict=False):
                if written != token:
                    break
                right += 1
            self._state.length = self._entries + right
        self._entries, self._written = 0, ()

    def _catch_up(self) -> Entries:
        """The entries that the K/V lacks; of many, all but the last are run here."""
        end = len(self._tokens) - self._ahead
        start = min(self._state.length, end - 1)
        if end - start > CHUNK:
            buffers = self._state.buffers
            graph = self._model.graphs.chain(self._slot, buffers, self._steps[0])
            self._prepare(graph, 0)
            while end - start > CHUNK:
                graph.run(self._slot, self._between(start, start + CHUNK))
                # A later module's last entries want tokens that this run did not know.
                start += CHUNK - self._modules + 1
        return self._between(start, end)

    def _between(self, start: int, end: int) -> Entries:
        ids = self._tokens[start + self._ahead : end + self._ahead]
        return Entries(np.array(ids, dtype=np.int64), start)

    def _note(self, entries: Entries) -> None:
        """What a run over `entries` left for good, to be counted when the round is committed."""
        self._entries = entries.end - self._modules + 1


class RecurrentTreeDrafter(RecurrentDrafter):
    """Drafts a dynamic tree (EAGLE-2, arXiv 2406.16858): the best of a graph's candidates.

    The graph goes on from those that its own probabilities make likeliest; which of them are
    verified is decided by how often such tokens were right.
    """

    def __init__(
        self, model: DrafterModel, slot: Slot, drawing: Drawing | None, branches: int
    ) -> None:
        super().__init__(model, slot, drawing)
        self._branches = branches

    def _draft(self, budget: int) -> Draft:
        graphs = self._model.graphs
        depth = enough(graphs.depths, budget)
        room = self._context + PAD_TOKENS - len(self._tokens) + self._ahead
        if (depth - 1) * self._model.spec.tree_width > room:
            return super()._draft(budget)
        graph = graphs.tree(self._slot, self._state.buffers, depth)
        entries = self._catch_up()
        graph.run(self._slot, entries)
        self._note(entries)
        return self._tree(GraphCandidates(graph).below, budget, self._branches)


def _state_of(slot: Slot, model: DrafterModel) -> DrafterState:
    """The slot's, made when it is first wanted."""
    state = slot.drafters.get(model.spec.kind)
    if state is None:
        state = DrafterState(model.spec, model.kv_type, slot.context, model.graphs.provider)
        slot.drafters[model.spec.kind] = state
    return state
