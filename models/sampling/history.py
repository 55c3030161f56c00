"""What changes single logits: penalties, bias, and the tokens that may not come yet."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.sampling.parameters import Sampling


@dataclass(frozen=True, slots=True)
class Patch:
    """Changes to the logits of some tokens of one row.

    Per token of `ids` [m]: `seen` where it is in the prompt or the answer, `counts` its
    occurrences in the answer, `bias` what is added (-inf forbids it).
    """

    ids: NDArray[np.int64]
    index: dict[int, int]
    seen: NDArray[np.bool_]
    counts: NDArray[np.int64]
    bias: NDArray[np.float64]
    sampling: Sampling

    def apply(self, places: NDArray[np.intp], logits: NDArray[np.float64]) -> NDArray[np.float64]:
        """The logits of `ids[places]`, changed."""
        sampling, seen, counts = self.sampling, self.seen[places], self.counts[places]
        penalty = sampling.repetition_penalty
        if penalty != 1:
            repeated = np.where(logits > 0, logits / penalty, logits * penalty)
            logits = np.where(seen, repeated, logits)
        logits = logits - sampling.presence_penalty * (counts > 0)
        logits = logits - sampling.frequency_penalty * counts
        return logits + self.bias[places]

    def raised(self) -> NDArray[np.intp]:
        """Places of tokens whose logit may have grown."""
        sampling = self.sampling
        rising = self.bias > 0
        if sampling.repetition_penalty < 1:
            rising = rising | self.seen
        if sampling.presence_penalty < 0 or sampling.frequency_penalty < 0:
            rising = rising | (self.counts > 0)
        return np.flatnonzero(rising)


class History:
    """The tokens of one request that processing depends on.

    Only `commit` changes it. Draft tokens ahead of a row are given to `patch` and leave no trace.
    Tokens in `endings` are forbidden while the answer is shorter than `min_tokens`.
    """

    def __init__(self, sampling: Sampling, prompt: Sequence[int], endings: Collection[int]) -> None:
        self._sampling = sampling
        self._endings = tuple(sorted(set(endings))) if sampling.min_tokens else ()
        self._length = 0
        self._index: dict[int, int] = {}
        self._seen: list[bool] = []
        self._counts: list[int] = []
        self._bias: list[float] = []
        for token, bias in sampling.logit_bias:
            self._bias[self._place(token)] += bias
        for token in self._endings:
            self._place(token)
        if sampling.repetition_penalty != 1:
            for token in prompt:
                self._seen[self._place(token)] = True
        self._fixed: Patch | None = None

    @property
    def length(self) -> int:
        """Tokens of the answer so far."""
        return self._length

    def commit(self, tokens: Sequence[int]) -> None:
        """`tokens` are part of the answer now."""
        self._length += len(tokens)
        self._fixed = None
        if self._sampling.penalised:
            for token in tokens:
                place = self._place(token)
                self._seen[place] = True
                self._counts[place] += 1

    def patch(self, ahead: Sequence[int]) -> Patch | None:
        """The changes for the row behind the answer so far and the draft tokens `ahead`."""
        if not (self._index or (ahead and self._sampling.penalised)):
            return None
        if self._fixed is None:
            self._fixed = self._make(self._length)
        if not ahead:
            return self._fixed
        return self._extended(self._fixed, ahead)

    def _place(self, token: int) -> int:
        place = self._index.setdefault(token, len(self._seen))
        if place == len(self._seen):
            self._seen.append(False)
            self._counts.append(0)
            self._bias.append(0.0)
        return place

    def _make(self, length: int) -> Patch:
        return Patch(
            ids=np.fromiter(self._index, dtype=np.int64, count=len(self._index)),
            index=self._index,
            seen=np.array(self._seen, dtype=np.bool_),
            counts=np.array(self._counts, dtype=np.int64),
            bias=self._biases(np.array(self._bias, dtype=np.float64), self._index, length),
            sampling=self._sampling,
        )

    def _extended(self, patch: Patch, ahead: Sequence[int]) -> Patch:
        index, new = patch.index, 0
        if self._sampling.penalised:
            missing = [token for token in dict.fromkeys(ahead) if token not in index]
            new = len(missing)
            if missing:
                index = {**index, **{t: len(index) + i for i, t in enumerate(missing)}}
        seen = np.concatenate([patch.seen, np.zeros(new, dtype=np.bool_)])
        counts = np.concatenate([patch.counts, np.zeros(new, dtype=np.int64)])
        bias = np.concatenate([np.array(self._bias), np.zeros(new)])
        if self._sampling.penalised:
            for token in ahead:
                seen[index[token]] = True
                counts[index[token]] += 1
        return Patch(
            ids=np.fromiter(index, dtype=np.int64, count=len(index)),
            index=index,
            seen=seen,
            counts=counts,
            bias=self._biases(bias, index, self._length + len(ahead)),
            sampling=self._sampling,
        )

    def _biases(
        self, bias: NDArray[np.float64], index: dict[int, int], length: int
    ) -> NDArray[np.float64]:
        if length < self._sampling.min_tokens:
            for token in self._endings:
                bias[index[token]] = -np.inf
        return bias
