"""Rows of logits that a suite holds itself, as `accept` and `Sampler` want them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class HostRow:
    """A `models.sampling.distribution.TargetRow` of whole logits [V] on the host."""

    values: NDArray[np.float32]
    ids: NDArray[np.int64]
    logsumexp: float
    logits: NDArray[np.float32]

    @property
    def vocab_size(self) -> int:
        return self.logits.size

    def whole(self) -> NDArray[np.float32]:
        return self.logits


@dataclass(frozen=True, slots=True)
class HostRows:
    """The rows of one verification: `row(0)` is behind the last committed token."""

    rows: Sequence[HostRow]

    def row(self, index: int) -> HostRow:
        return self.rows[index]


def host_row(logits: NDArray[np.float32], top_k: int) -> HostRow:
    """What the graph would give of this row: its `top_k` largest, of equal ones the lower ids."""
    count = min(top_k, logits.size)
    least = np.partition(logits, logits.size - count)[logits.size - count]
    likely = np.flatnonzero(logits >= least)
    ids = likely[np.argsort(-logits[likely], kind="stable")][:count]
    largest = float(logits[ids[0]])
    total = np.exp(logits.astype(np.float64) - largest).sum()
    return HostRow(logits[ids], ids, float(np.float32(largest + np.log(total))), logits)
