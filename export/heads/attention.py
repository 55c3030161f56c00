"""How a head's layers attend: rotary tables, and attention as torch runs it.

A layer knows nothing of caches, masks or tracing: it hands q, k and v to an `Attention`. Here is
the plain one with a K/V cache; tracing and training have their own.
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
    """Causal attention behind what is cached; every call adds its tokens to the cache."""

    def __init__(self) -> None:
        self.cache: dict[int, tuple[Tensor, Tensor]] = {}

    def __call__(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, rotary: Rotary, positions: Tensor
    ) -> Tensor:
        q, k = rotary.rotate(q, positions), rotary.rotate(k, positions)
        past, mask = 0, None
        if layer in self.cache:
            before_k, before_v = self.cache[layer]
            past = before_k.shape[2]
            k, v = torch.cat([before_k, k], dim=2), torch.cat([before_v, v], dim=2)
        self.cache[layer] = (k, v)
        if past:
            mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).tril(past)
        shared = q.shape[1] != k.shape[1]
        return F.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=mask is None, enable_gqa=shared
        )
