"""Trees of tokens: where each stands and what it sees."""

from __future__ import annotations

import numpy as np
import pytest

from models.trees import HIDDEN, attention_bias, depths, is_chain, seen

PARENTS = (-1, 0, 0, 1, 2, 2, 5)
PATHS = [(0,), (0, 1), (0, 2), (0, 1, 3), (0, 2, 4), (0, 2, 5), (0, 2, 5, 6)]


def test_a_token_stands_behind_those_it_follows() -> None:
    assert depths(PARENTS).tolist() == [len(path) - 1 for path in PATHS]
    assert depths((-1, 0, 1, 2)).tolist() == [0, 1, 2, 3]


def test_a_token_sees_its_path_and_nothing_else() -> None:
    visible = seen(PARENTS)
    assert [tuple(np.flatnonzero(row)) for row in visible] == PATHS
    with pytest.raises(AssertionError, match="before their children"):
        seen((-1, 2, 0))


def test_a_chain_is_a_tree_without_branches() -> None:
    assert is_chain((-1,))
    assert is_chain((-1, 0, 1, 2))
    assert not is_chain((-1, 0, 0))
    assert not is_chain((-1, 0, 1, 1))


@pytest.mark.parametrize("kv_type", ["fp32", "fp16"])
def test_the_bias_hides_what_is_no_ancestor(kv_type: str) -> None:
    """What lies before the row is seen; padding is left to the causal mask."""
    past, pad = 5, 2
    width = len(PARENTS) + pad
    bias = attention_bias(PARENTS, width, past + width, kv_type)
    assert bias.shape == (1, 1, width, past + width)
    assert bias.dtype == (np.float16 if kv_type == "fp16" else np.float32)
    assert np.isfinite(bias).all()
    for token, path in enumerate(PATHS):
        hidden = set(range(len(PARENTS))) - set(path)
        expected = np.zeros(past + width, bias.dtype)
        expected[[past + other for other in hidden]] = HIDDEN[kv_type]
        assert bias[0, 0, token].tolist() == expected.tolist()
    assert not bias[0, 0, len(PARENTS) :].any()


def test_a_chains_bias_is_zero() -> None:
    bias = attention_bias(None, 4, 9, "fp32")
    assert bias.shape == (1, 1, 4, 9)
    assert not bias.any()
