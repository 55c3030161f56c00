"""Tokens for the parts: a text, prefilled, and runs behind it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from models.rows import Row, RowResult
from models.slots import Slot
from models.target import Target

PROMPT = 32


def random_tokens(target: Target, count: int, seed: int = 0) -> list[int]:
    random = np.random.default_rng(seed)
    return [int(token) for token in random.integers(3, target.vocab_size, count)]


def prefill(target: Target, slot: Slot, tokens: Sequence[int]) -> None:
    slot.truncate(0)
    target.run([Row(slot, tuple(tokens), logits=0)])
    slot.commit(tokens)


def in_parts(target: Target, slot: Slot, tokens: Sequence[int], width: int) -> list[RowResult]:
    """The results of `tokens` behind what `slot` holds, `width` a run."""
    results = []
    for begin in range(0, len(tokens), width):
        part = tuple(tokens[begin : begin + width])
        results += target.run([Row(slot, part, logits=len(part))])
        slot.commit(part)
    return results


def margins(results: Sequence[RowResult]) -> NDArray[np.float32]:
    """How far the first of every row is before the second, in logits."""
    values = np.concatenate([result.top_values for result in results])
    gaps: NDArray[np.float32] = values[:, 0] - values[:, 1]
    return gaps


def first_ids(results: Sequence[RowResult]) -> NDArray[np.int64]:
    return np.concatenate([result.top_ids[:, 0] for result in results])


def largest_difference(found: Sequence[RowResult], expected: Sequence[RowResult]) -> float:
    """Of the largest logits, in units of what separates the first from the last listed one."""
    one, two = (np.concatenate([each.top_values for each in side]) for side in (found, expected))
    spread = float((two[:, 0] - two[:, -1]).mean())
    return float(np.abs(one - two).max()) / max(spread, 1e-6)
