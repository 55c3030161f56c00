"""Medusa: heads that answer for the next places all at once (Cai et al., arXiv 2401.10774)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from models.draft import Draft
from models.drafters.bound import collect_heads, feed_features
from models.drafters.drawing import Drawing
from models.drafters.model import DrafterModel, LearnedDrafter
from models.drafters.trees import Heads
from models.slots import Slot


class MedusaDrafter(LearnedDrafter):
    """Drafts a chain of each head's token, or the likeliest paths through the heads' lists.

    The feature is that of the last token in the slot. The target's own answer behind it is the last
    committed token, so the first head's is the token behind that. Nothing is kept between rounds.
    """

    def __init__(
        self, model: DrafterModel, slot: Slot, drawing: Drawing | None, branches: int
    ) -> None:
        super().__init__(model, slot, drawing)
        assert model.spec.reads is not None, "heads read a feature"
        self._reads = model.spec.reads
        self._branches = branches

    def _draft(self, budget: int) -> Draft:
        binding = self._model.graphs.heads(self._slot)
        feed_features(binding, self._slot, self._reads, len(self._tokens) - 2, 1)
        values, ids, logsumexp = collect_heads(binding, self._model.spec)
        binding.run()
        if self._branches > 1:
            return self._best_paths(values, ids, logsumexp, budget)
        drawing = self._drawing
        if drawing is None:
            return self._likeliest(ids[:budget, 0].tolist(), values[:budget, 0], logsumexp[:budget])
        lists = zip(values[:budget], ids[:budget], strict=True)
        proposals = [drawing.proposal(*own) for own in lists]
        first = len(self._tokens)
        tokens = [drawing.draw(first + place, q) for place, q in enumerate(proposals)]
        return self._sampled(tokens, proposals)

    def _best_paths(
        self,
        values: NDArray[np.float32],
        ids: NDArray[np.int64],
        logsumexp: NDArray[np.float32],
        budget: int,
    ) -> Draft:
        kept = self._branches
        shares = np.exp(values[:, :kept] - logsumexp[:, None])
        return self._tree(Heads(ids[:, :kept], shares).below, budget, kept)
