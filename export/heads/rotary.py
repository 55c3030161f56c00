"""Rotary tables from the part of a config that describes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from export.heads.attention import Rotary
from models.memory import PAD_TOKENS

ROPE_KEYS = (
    "rope_theta",
    "rope_scaling",
    "partial_rotary_factor",
    "max_position_embeddings",
    "original_max_position_embeddings",
)


def make_rotary(rope: Mapping[str, Any], head_dim: int, context: int) -> Rotary:
    """`rope` holds what a config has of `ROPE_KEYS`; the rest is as Llama's.

    The pad positions, which nothing reads, repeat the last one: some scalings change with length.
    """
    given = {key: rope[key] for key in ROPE_KEYS if rope.get(key) is not None}
    config: Any = LlamaConfig(  # type: ignore[no-untyped-call]
        **given, head_dim=head_dim, hidden_size=head_dim, num_attention_heads=1
    )
    positions = torch.arange(context)[None]
    tables = LlamaRotaryEmbedding(config)(torch.zeros(1), positions)
    half = tables[0].shape[-1] // 2
    cos, sin = (
        torch.cat([table[0, :, :half], table[0, -1:, :half].expand(PAD_TOKENS, -1)])
        for table in tables
    )
    return Rotary(cos, sin)
