"""How a head's layers attend: rotary tables, and the ways of attending that torch runs.

A layer knows nothing of caches, masks or tracing: it hands q, k and v to an `Attention`. Here are
the plain causal one with a K/V cache and the one of training-time test; tracing has its own.
"""

from __future__ import annotations

from typing import Protocol

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn


class Rotary(nn.Module):
    """cos and sin of every position, [positions, rotary_dim / 2]; the halves of a head rotate.

    Dimensions of a head behind `rotary_dim` do not rotate. The tables are no part of a checkpoint.
    """

    cos: Tensor
    sin: Tensor

    def __init__(self, cos: Tensor, sin: Tensor) -> None:
        super().__init__()
        self.register_buffer("cos", cos.float(), persistent=False)
        self.register_buffer("sin", sin.float(), persistent=False)

    def rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        """x [B, heads, N, head_dim]; positions [N] or [B, N]."""
        cos, sin = (F.embedding(positions, t).unsqueeze(-3) for t in (self.cos, self.sin))
        half = cos.shape[-1]
        first, second, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
        parts = [first * cos - second * sin, second * cos + first * sin]
        return torch.cat([*parts, rest] if rest.shape[-1] else parts, dim=-1)


class Attention(Protocol):
    """One step's attention of a head.

    `layer` counts the head's layers; q is [B, heads, N, head_dim], k and v are
    [B, kv_heads, N, head_dim], all unrotated; positions [N] or [B, N]. Returns
    [B, heads, N, head_dim].
    """

    def __call__(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, rotary: Rotary, positions: Tensor
    ) -> Tensor: ...


class CausalAttention:
    """Causal attention behind what is cached; every call adds its tokens to the cache.

    `mask` ([N, N] or [B, 1, N, N] bool, True attends) replaces the causal one where several texts
    are packed; it is for calls without a past.
    """

    def __init__(self, mask: Tensor | None = None) -> None:
        self.mask = mask
        self.cache: dict[int, tuple[Tensor, Tensor]] = {}

    def __call__(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, rotary: Rotary, positions: Tensor
    ) -> Tensor:
        q, k = rotary.rotate(q, positions), rotary.rotate(k, positions)
        past = 0
        if layer in self.cache:
            before_k, before_v = self.cache[layer]
            past = before_k.shape[2]
            k, v = torch.cat([before_k, k], dim=2), torch.cat([before_v, v], dim=2)
        self.cache[layer] = (k, v)
        mask = self.mask
        if past:
            new, total = q.shape[2], k.shape[2]
            mask = torch.ones(new, total, dtype=torch.bool, device=q.device).tril(past)
        return attend(q, k, v, mask)

    def truncate(self, length: int) -> None:
        """Keep the first `length` entries of every layer."""
        for layer, (k, v) in self.cache.items():
            self.cache[layer] = (k[:, :, :length], v[:, :, :length])


class UnrolledAttention:
    """Training-time test (EAGLE-3, arXiv 2503.01840): all positions draft several steps at once.

    The first call is the causal pass over the text. In the k-th call after it, query p stands for
    the draft k tokens behind p (its position is p + k): it sees the first pass's entries up to p
    and, of the later calls, its own column only. For heads of one layer, or of several: each layer
    has its own columns. `mask` as in `CausalAttention`. Make a new one for each batch.
    """

    def __init__(self, mask: Tensor | None = None) -> None:
        self.mask = mask
        self._first: dict[int, tuple[Tensor, Tensor]] = {}
        self._later: dict[int, list[tuple[Tensor, Tensor]]] = {}
        self._bias: Tensor | None = None

    def __call__(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, rotary: Rotary, positions: Tensor
    ) -> Tensor:
        q, k = rotary.rotate(q, positions), rotary.rotate(k, positions)
        if layer not in self._first:
            self._first[layer] = (k, v)
            return attend(q, k, v, self.mask)
        later = self._later.setdefault(layer, [])
        later.append((k, v))
        return self._step(q, *self._first[layer], later)

    def _step(self, q: Tensor, k: Tensor, v: Tensor, later: list[tuple[Tensor, Tensor]]) -> Tensor:
        batch, heads, count, width = q.shape
        kv_heads = k.shape[1]
        # Heads that share keys side by side: no key is copied.
        q = (q * width**-0.5).view(batch, kv_heads, heads // kv_heads, count, width)
        scores = q.flatten(2, 3) @ k.transpose(-1, -2)
        scores = scores.view(batch, kv_heads, -1, count, count) + self._mask_bias(scores)
        own = [(q * key.unsqueeze(2)).sum(-1, keepdim=True) for key, _ in later]
        weights = torch.cat([scores, *own], dim=-1).softmax(-1)
        past = weights[..., :count].reshape(batch, kv_heads, -1, count) @ v
        output = past.view(batch, kv_heads, -1, count, width)
        for step, (_, value) in enumerate(later):
            output = output + weights[..., count + step, None] * value.unsqueeze(2)
        return output.reshape(batch, heads, count, width)

    def _mask_bias(self, scores: Tensor) -> Tensor:
        """0 or -inf, to be added to [B, kv_heads, group, N, N]; made once."""
        if self._bias is None:
            count = scores.shape[-1]
            mask = self.mask
            if mask is None:
                mask = torch.ones(count, count, dtype=torch.bool, device=scores.device).tril()
            bias = torch.zeros(mask.shape, dtype=scores.dtype, device=scores.device)
            bias = bias.masked_fill_(~mask, float("-inf"))
            self._bias = bias.unsqueeze(1) if bias.dim() == 4 else bias
        return self._bias


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """Scaled dot-product attention, causal where there is no mask."""
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=mask is None, enable_gqa=q.shape[1] != k.shape[1]
    )
