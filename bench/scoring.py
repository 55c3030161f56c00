"""Whole rows of a package's logits on given tokens, without an engine."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from models.package import Package
from models.providers import select_provider
from models.target import Row, Target


class Scorer:
    """A target of its own, with a slot of `context` tokens for each row of a run."""

    def __init__(self, package: Package, threads: int | None, context: int) -> None:
        provider = select_provider("auto", package.manifest.target.device)
        self.target = Target(package, provider, threads)
        self.slots = self.target.make_slots(self.target.most_rows, context)

    def logits(self, ids: Sequence[int], wanted: int) -> NDArray[np.float32]:
        """[wanted, V]: behind each of the last `wanted` of `ids`, from one run of one row."""
        slot = self.slots[0]
        slot.truncate(0)
        (result,) = self.target.run([Row(slot, tuple(ids), logits=wanted)])
        return np.stack([result.whole(index) for index in range(wanted)])

    def behind(self, texts: Sequence[Sequence[int]]) -> list[NDArray[np.float32]]:
        """[V] behind each of `texts`, as many in a run as it takes."""
        found: list[NDArray[np.float32]] = []
        most = len(self.slots)
        for start in range(0, len(texts), most):
            rows = []
            for slot, ids in zip(self.slots, texts[start : start + most], strict=False):
                slot.truncate(0)
                rows.append(Row(slot, tuple(ids), logits=1))
            found += [result.whole(0).copy() for result in self.target.run(rows)]
        return found
