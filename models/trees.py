"""Drafts that branch: where the tokens of a row stand, and what each of them must not see.

A tree of tokens is given by `parents`, one a token: the index of the token it follows, -1 for the
first. Parents come before their children, so that the causal mask hides no ancestor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

HIDDEN = {"fp32": -1e9, "fp16": -3e4}
"""Added to a score it makes the probability 0; finite, because kernels that go through the keys in
blocks would make NaN of a block that is -inf throughout."""


def is_chain(parents: Sequence[int]) -> bool:
    return all(parent == index - 1 for index, parent in enumerate(parents))


def depths(parents: Sequence[int]) -> NDArray[np.int64]:
    """How many tokens of the row each token follows."""
    found = np.zeros(len(parents), dtype=np.int64)
    for index, parent in enumerate(parents):
        if parent >= 0:
            found[index] = found[parent] + 1
    return found


def seen(parents: Sequence[int]) -> NDArray[np.bool_]:
    """[S, S]: whether token i sees token j: itself and those it follows."""
    visible = np.eye(len(parents), dtype=np.bool_)
    for index, parent in enumerate(parents):
        assert parent < index, "parents come before their children"
        if parent >= 0:
            visible[index] |= visible[parent]
    return visible


def attention_bias(
    parents: Sequence[int] | None, width: int, total: int, kv_type: str
) -> NDArray[np.floating[Any]]:
    """[1, 1, width, total] of a row behind `total - width` committed tokens, all of them seen.

    Tokens beyond the tree's are padding: nobody's ancestors, and the causal mask hides them. A
    chain's bias (`parents` None) is zero.
    """
    kind = np.float16 if kv_type == "fp16" else np.float32
    bias = np.zeros((1, 1, width, total), dtype=kind)
    if parents is not None:
        own = bias[0, 0, : len(parents), total - width : total - width + len(parents)]
        own[~seen(parents)] = HIDDEN[kv_type]
    return bias
