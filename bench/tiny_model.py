"""A model small enough to enumerate: its logits behind every context, in a table."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from bench.rows import HostRow, host_row
from models.draft import Draft

VOCABULARY = 12
SHOWN = 5
"""Tokens of a row that the host sees: the others are the tail, as with a real vocabulary."""

_REPEATS = 1.0
_SPREAD = 1.1
_DISAGREEMENT = 0.8


@dataclass(frozen=True, slots=True)
class TinyModel:
    """Logits [1 + V + V^2, V] float32: behind the prompt, behind one token, behind two.

    Behind more tokens the last two decide.
    """

    logits: NDArray[np.float32]
    shown: int = SHOWN
    rows: tuple[HostRow, ...] = field(init=False)

    def __post_init__(self) -> None:
        assert len(self.logits) == 1 + self.vocab_size + self.vocab_size**2
        rows = tuple(host_row(logits, self.shown) for logits in self.logits)
        object.__setattr__(self, "rows", rows)

    @property
    def vocab_size(self) -> int:
        return int(self.logits.shape[1])

    def row(self, tokens: tuple[int, ...]) -> HostRow:
        """The row behind the answer `tokens`."""
        return self.rows[place_of(tokens, self.vocab_size)]


@dataclass(frozen=True, slots=True)
class RowsBehind:
    """The rows that the target gives for `draft` behind the answer `answer`."""

    model: TinyModel
    answer: tuple[int, ...]
    draft: Draft

    def row(self, index: int) -> HostRow:
        tokens, parents = self.draft.tokens, self.draft.parents
        if parents is None:
            return self.model.row(self.answer + tokens[:index])
        path, node = list[int](), index - 1
        while node >= 0:
            path.append(tokens[node])
            node = parents[node]
        return self.model.row((*self.answer, *reversed(path)))


def place_of(tokens: tuple[int, ...], vocab_size: int) -> int:
    """The table's place for a context."""
    if not tokens:
        return 0
    if len(tokens) == 1:
        return 1 + tokens[0]
    return 1 + vocab_size * (1 + tokens[-2]) + tokens[-1]


def random_model(seed: int) -> TinyModel:
    """Neither flat nor peaked, and a token likely to come again, so that penalties matter."""
    noise = np.random.default_rng(seed)
    size = VOCABULARY
    logits = _SPREAD * noise.standard_normal((1 + size + size**2, size))
    for token in range(size):
        logits[1 + token, token] += _REPEATS
        for before in range(size):
            logits[place_of((before, token), size), token] += _REPEATS
    return TinyModel(logits.astype(np.float32))


def drafter_of(target: TinyModel, seed: int) -> TinyModel:
    """A drafter that often agrees with `target`, and often not."""
    noise = np.random.default_rng(seed).standard_normal(target.logits.shape)
    return TinyModel((target.logits + _DISAGREEMENT * noise).astype(np.float32), target.shown)
