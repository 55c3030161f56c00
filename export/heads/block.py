"""The decoder layer that heads are made of, with its parameters named as in transformers' Llama."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from export.heads.attention import Attention, Rotary


@dataclass(frozen=True, slots=True)
class BlockShape:
    """Sizes of a decoder layer, and which of its optional parameters it has."""

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    epsilon: float = 1e-5
    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False


class RmsNorm(nn.Module):
    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.weight.shape, self.weight, self.epsilon)


class SelfAttention(nn.Module):
    """Grouped-query attention; q and k may be normed per head before they rotate (Qwen3).

    `width` is what q, k and v read.
    """

    def __init__(self, shape: BlockShape, width: int) -> None:
        super().__init__()
        q_width, kv_width = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        self.head_dim = shape.head_dim
        self.q_proj = nn.Linear(width, q_width, bias=shape.qkv_bias)
        self.k_proj = nn.Linear(width, kv_width, bias=shape.qkv_bias)
        self.v_proj = nn.Linear(width, kv_width, bias=shape.qkv_bias)
        self.o_proj = nn.Linear(q_width, shape.hidden, bias=shape.o_bias)
        self.q_norm = RmsNorm(shape.head_dim, shape.epsilon) if shape.qk_norm else None
        self.k_norm = RmsNorm(shape.head_dim, shape.epsilon) if shape.qk_norm else None

    def forward(
        self, x: Tensor, layer: int, attention: Attention, rotary: Rotary, positions: Tensor
    ) -> Tensor:
        q, k, v = (self._heads(linear(x)) for linear in (self.q_proj, self.k_proj, self.v_proj))
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        output = attention(
            layer, q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), rotary, positions
        )
        merged: Tensor = self.o_proj(output.transpose(1, 2).reshape(*x.shape[:-1], -1))
        return merged

    def _heads(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:-1], -1, self.head_dim)


class Mlp(nn.Module):
    """SwiGLU."""

    def __init__(self, shape: BlockShape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden, shape.intermediate, bias=shape.mlp_bias)
        self.up_proj = nn.Linear(shape.hidden, shape.intermediate, bias=shape.mlp_bias)
        self.down_proj = nn.Linear(shape.intermediate, shape.hidden, bias=shape.mlp_bias)
        self.act_fn = nn.SiLU()

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))
        return output


class DecoderBlock(nn.Module):
    """A Llama layer. EAGLE-1's first layer has no input norm."""

    def __init__(self, shape: BlockShape, *, input_norm: bool = True) -> None:
        super().__init__()
        self.input_layernorm = RmsNorm(shape.hidden, shape.epsilon) if input_norm else None
        self.self_attn = SelfAttention(shape, shape.hidden)
        self.post_attention_layernorm = RmsNorm(shape.hidden, shape.epsilon)
        self.mlp = Mlp(shape)

    def forward(
        self, x: Tensor, layer: int, attention: Attention, rotary: Rotary, positions: Tensor
    ) -> Tensor:
        """x [B, N, hidden] -> [B, N, hidden]; `layer` is the number its K/V goes by."""
        normed = x if self.input_layernorm is None else self.input_layernorm(x)
        x = x + self.self_attn(normed, layer, attention, rotary, positions)
        output: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return output
