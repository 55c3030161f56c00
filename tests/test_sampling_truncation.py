"""Top-k and top-p of whole rows, against sorting them."""

from __future__ import annotations

import numpy as np
import pytest

from models.sampling.truncation import keep_top_k, keep_top_p

CASES = [
    (size, scale, rounded)
    for size in (10, 300, 5_000, 60_000)
    for scale in (0.1, 1.0, 3.0, 6.0)
    for rounded in (False, True)
]


def row(size: int, scale: float, rounded: bool) -> np.ndarray:
    logits = np.random.default_rng(size).normal(size=size) * scale
    if rounded:
        logits = np.round(logits * 2) / 2
    return np.exp((logits - logits.max()).astype(np.float32))


@pytest.mark.parametrize(("size", "scale", "rounded"), CASES)
def test_the_nucleus_is_the_shortest_prefix_of_the_sorted_row(
    size: int, scale: float, rounded: bool
) -> None:
    for top_p in (0.1, 0.5, 0.9, 0.95, 0.999):
        weights = row(size, scale, rounded)
        order = np.argsort(-weights, kind="stable")
        sums = np.cumsum(weights[order], dtype=np.float64)
        count = int(np.searchsorted(sums, top_p * sums[-1] * (1 - 1e-12))) + 1
        kept = weights.copy()
        keep_top_p(kept, top_p)
        assert abs(np.count_nonzero(kept) - count) <= (1 if size > 4096 else 0)
        count = np.count_nonzero(kept)
        expected = np.zeros_like(weights)
        expected[order[:count]] = weights[order[:count]]
        assert np.array_equal(kept, expected)


@pytest.mark.parametrize(("size", "scale", "rounded"), CASES)
def test_top_k_keeps_the_lower_ids_of_equal_ones(size: int, scale: float, rounded: bool) -> None:
    for top_k in (1, size // 3, size - 1):
        weights = row(size, scale, rounded)
        order = np.argsort(-weights, kind="stable")[:top_k]
        expected = np.zeros_like(weights)
        expected[order] = weights[order]
        keep_top_k(weights, top_k)
        assert np.array_equal(weights, expected)


def test_top_p_zero_keeps_the_most_likely_token() -> None:
    weights = np.array([0.2, 1.0, 0.5], dtype=np.float32)
    keep_top_p(weights, 0.0)
    assert weights.tolist() == [0, 1, 0]
