"""How a request that samples draws its drafts: q, and the noise behind it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from models.draft import Proposal
from models.sampling.noise import Purpose, exponentials, gumbels
from models.sampling.parameters import Sampling

_NO_TRUNCATION = 2.0
"""A top-p of 1 keeps all tokens, also where their sum is rounded to 1 before the last."""

_LEAST_TOP_P = 1e-6
"""The likeliest token always stays."""


class Drawing:
    """One request's way of drawing drafts.

    With `shared` noise a draft agrees with the target's coupled draw as often as can be; every
    other rule needs noise that is independent of the target's.
    """

    def __init__(self, sampling: Sampling, seed: int, *, shared: bool, listed: int) -> None:
        self.shared = shared
        self.purpose = Purpose.TOKEN if shared else Purpose.DRAFT
        self.seed = seed
        self.inverse_temperature = float(np.float32(1 / sampling.temperature))
        self.top_k = min(sampling.top_k, listed) if sampling.top_k > 0 else listed
        top_p = max(sampling.top_p, _LEAST_TOP_P) if sampling.top_p < 1 else _NO_TRUNCATION
        self.top_p = float(np.float32(top_p))

    def proposal(self, values: NDArray[np.float32], ids: NDArray[np.int64]) -> Proposal:
        """q from the largest logits [T], in falling order, and their ids: temperature, then
        top-k, then top-p of what that leaves. As graphs draw."""
        logits = (values[: self.top_k].astype(np.float64) - values[0]) * self.inverse_temperature
        weights = np.exp(logits)
        if self.top_p < 1:
            mass = np.cumsum(weights)
            before = (mass - weights) / mass[-1]
            weights = weights[: int(np.count_nonzero(before < self.top_p))]
        weights = weights[weights > 0]
        return Proposal(ids[: weights.size].copy(), weights / np.add.reduce(weights))

    def draw(self, position: int, proposal: Proposal) -> int:
        """The token at `position`."""
        times = exponentials(self.seed, position, self.purpose, proposal.ids)
        return int(proposal.ids[(times / proposal.probabilities).argmin()])


class NoiseRows:
    """Gumbel noise of consecutive positions, a row [Vd] each, for the graph that draws.

    Rows of positions that come again, because drafts were rejected, are kept.
    """

    def __init__(self, drawing: Drawing, vocabulary: NDArray[np.uint64], most: int) -> None:
        self._drawing = drawing
        self._vocabulary = vocabulary
        self._rows = np.zeros((most, vocabulary.size), dtype=np.float32)
        self._first = 0
        self._made = 0
        self._views: dict[int, NDArray[np.float32]] = {}
        self.computed = 0

    def first(self, count: int) -> NDArray[np.float32]:
        """The first `count` rows: the same view at every call, which later rows are written to."""
        view = self._views.get(count)
        if view is None:
            view = self._views[count] = self._rows[:count]
        return view

    def place(self, position: int, count: int) -> None:
        """Have row i be that of `position + i`, for the first `count`."""
        passed = position - self._first
        kept = self._made - passed
        if passed < 0 or kept <= 0:
            self._made = 0
        elif passed:
            self._rows[:kept] = self._rows[passed : self._made]
            self._made = kept
        self._first = position
        drawing = self._drawing
        for row in range(self._made, count):
            gumbels(
                drawing.seed, position + row, drawing.purpose, self._vocabulary, self._rows[row]
            )
            self.computed += 1
        self._made = max(self._made, count)
