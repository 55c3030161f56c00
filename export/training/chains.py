"""Training-time test (EAGLE-3, arXiv 2503.01840) for chosen places of packed texts.

A chain starts at an anchor, the place of a text from which a head would draft, and is unrolled
step by step. It attends to the entries that the text gave the head before the anchor, and to its
own. Only chains cost whole steps: of all other places keys and values are all that is needed. That
also lets chains end early: where a draft was wrong, nothing is drafted behind it in use either.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

import torch
from torch import Tensor

from export.heads.attention import Rotary
from export.heads.head import SteppingHead
from export.training.batches import Batch


class _Enough(Exception):  # noqa: N818
    """Carries keys and values out of a step whose output nobody needs."""


@dataclass(slots=True)
class Entries:
    """Rotated keys and values [kv_heads, N, head_dim] that a head has of whole texts."""

    keys: Tensor
    values: Tensor


class _Reader:
    """An attention that attends to nothing: it takes the keys and ends the step."""

    def __init__(self) -> None:
        self.entries: Entries | None = None

    def __call__(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, rotary: Rotary, positions: Tensor
    ) -> Tensor:
        self.entries = Entries(rotary.rotate(k, positions)[0], v[0])
        raise _Enough


def read_entries(head: SteppingHead, batch: Batch, states: Tensor) -> Entries:
    """The entries of a head of one layer; states [N, hidden]."""
    assert head.kv_layers == 1
    following, _ = batch.behind(torch.arange(len(batch.ids), device=batch.ids.device), 1)
    reader = _Reader()
    with contextlib.suppress(_Enough):
        head.step(head.embed(batch.ids[following])[None], states[None], reader, batch.positions)
    assert reader.entries is not None
    return reader.entries


class ChainAttention:
    """Every call is a step of all chains: query i belongs to the chain that began at `anchors[i]`.

    `anchors` rise. A chain sees its text's entries before its anchor and its own of all steps.
    """

    def __init__(self, entries: Entries, batch: Batch, anchors: Tensor) -> None:
        self._entries = entries
        self._batch = batch
        self._own: list[tuple[Tensor, Tensor]] = []
        self._anchors = anchors
        self._spans = _spans(batch, anchors)

    def keep(self, chosen: Tensor) -> None:
        """Go on with `chosen` (rising indices) of the chains only."""
        self._anchors = self._anchors[chosen]
        self._own = [(key[:, chosen], value[:, chosen]) for key, value in self._own]
        self._spans = _spans(self._batch, self._anchors)

    def __call__(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, rotary: Rotary, positions: Tensor
    ) -> Tensor:
        q, k = rotary.rotate(q, positions)[0], rotary.rotate(k, positions)[0]
        self._own.append((k, v[0]))
        heads, count, width = q.shape
        q = (q * width**-0.5).view(k.shape[0], heads // k.shape[0], count, width)
        parts = [
            self._attend(q[:, :, first:last], first, last, begin, self._anchors[first:last])
            for begin, first, last in self._spans
        ]
        return torch.cat(parts, dim=2).reshape(1, heads, count, width)

    def _attend(self, q: Tensor, first: int, last: int, begin: int, anchors: Tensor) -> Tensor:
        """q [kv_heads, group, n, width] of the chains first to last, in the text from `begin`."""
        kv_heads, group, count, width = q.shape
        end = int(anchors[-1])
        keys, values = self._entries.keys[:, begin:end], self._entries.values[:, begin:end]
        scores = (q.flatten(1, 2) @ keys.transpose(1, 2)).view(kv_heads, group, count, -1)
        hidden = torch.arange(begin, end, device=q.device) >= anchors[:, None]
        scores = scores.masked_fill(hidden, float("-inf"))
        own = [(q * key[:, None, first:last]).sum(-1, keepdim=True) for key, _ in self._own]
        weights = torch.cat([scores, *own], dim=-1).softmax(-1)
        past = weights[..., : end - begin].flatten(1, 2) @ values
        output = past.view(kv_heads, group, count, width)
        for step, (_, value) in enumerate(self._own):
            share = weights[..., end - begin + step, None]
            output = output + share * value[:, None, first:last]
        return output


def _spans(batch: Batch, anchors: Tensor) -> list[tuple[int, int, int]]:
    """(begin of the text, first chain, last chain + 1) of every text that has chains."""
    found = []
    for begin, end in batch.segments:
        first, last = torch.searchsorted(anchors, torch.tensor([begin, end], device=anchors.device))
        if last > first:
            found.append((begin, int(first), int(last)))
    return found
