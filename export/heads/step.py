"""One autoregressive step of a drafter as a graph: what unrolling is made from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class StepGraph:
    """A canonical fp32 graph of one step over N tokens.

    Inputs: `input_ids` [1, N] int64; `states` [N, hidden] (not for draft models); `logits_index`
    [M] int64; `position_ids` [1, N] int64; `seqlens_k.0` [1] int32 and `total_length.0` [] int32,
    as for the target; `past.{layer}.0.{key,value}`. Outputs: `logits` [M, draft vocabulary];
    `next_states` [N, hidden] (not for draft models); `present.{layer}.0.{key,value}`.

    `entry` makes the first step's `states` [N, hidden] of the target's `features` [N, F]; None: the
    features are the states. `ids` are the target's ids of the draft vocabulary; None: all, in
    order.

    `later` are the steps of heads with a module for each: step k of a draft is
    `(model, *later)[min(k, len(later))]`. Each has the inputs and outputs above, its K/V under its
    own layer number. While k <= len(later), step k runs over the same N entries as step 0: its ids
    are those of the step before without the first and with the token just drafted behind them, its
    positions and lengths those of step 0, its states all N next states of the step before. Only
    the steps behind them run over the drafted token alone. So an entry is final, and need not be
    fed again, once 1 + len(later) tokens behind it are known.
    """

    model: onnx.ModelProto
    entry: onnx.ModelProto | None
    ids: NDArray[np.int64] | None
    later: tuple[onnx.ModelProto, ...] = ()
