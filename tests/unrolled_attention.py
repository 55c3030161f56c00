"""Training-time test written plainly: every position of a text drafts at once, step by step."""

from __future__ import annotations

import torch
from torch import Tensor

from export.heads.attention import Rotary


class UnrolledAttention:
    """The first call is the causal pass over a text; call k behind it is draft step k.

    There query p stands for the draft k tokens behind p, at position p + k: it sees the entries of
    the first pass up to p and, of the later calls, those of its own column.
    """

    def __init__(self) -> None:
        self._entries: dict[int, list[tuple[Tensor, Tensor]]] = {}

    def __call__(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, rotary: Rotary, positions: Tensor
    ) -> Tensor:
        q, k = rotary.rotate(q, positions), rotary.rotate(k, positions)
        group = q.shape[1] // k.shape[1]
        k, v = (x.repeat_interleave(group, dim=1) for x in (k, v))
        entries = self._entries.setdefault(layer, [])
        entries.append((k, v))
        (first_k, first_v), *own = entries
        count = q.shape[2]
        ahead = torch.ones(count, count, dtype=torch.bool).triu(1)
        scores = (q @ first_k.transpose(-1, -2)).masked_fill(ahead, float("-inf"))
        columns = [(q * key).sum(-1, keepdim=True) for key, _ in own]
        weights = (torch.cat([scores, *columns], dim=-1) * q.shape[-1] ** -0.5).softmax(-1)
        output = weights[..., :count] @ first_v
        for step, (_, value) in enumerate(own):
            output = output + weights[..., count + step, None] * value
        return output
