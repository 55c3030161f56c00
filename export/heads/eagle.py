"""EAGLE-1 and EAGLE-2 (arXiv 2401.15077, 2406.16858), named as SafeAILab publishes them.

EAGLE-2 is the same head; only its drafts branch. The feature is the target's hidden state behind
its final norm, and so is what a step gives: the target's LM head reads it as it is. `fc` fuses
token (first) and feature; the first layer has no input norm; there is no final norm.

The `speculators` project adds, where its `layernorms` is set, the input norm, a norm of the
embeddings and one of the last layer's output. The next state is behind that last norm, as the
target's feature is behind its own: what the LM head reads.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from export.heads.attention import Attention, Rotary
from export.heads.block import BlockShape, DecoderBlock, RmsNorm
from export.heads.head import Borrowed, look_up, project


@dataclass(frozen=True, slots=True)
class EagleShape:
    """What differs between published EAGLE-1/2 heads, beside the sizes of their layers."""

    block: BlockShape
    vocab_size: int
    layers: int = 1
    fc_bias: bool = True
    own_embeddings: bool = False
    own_head: bool = False
    norms: bool = False


class Eagle(nn.Module):
    """Without embeddings or LM head of its own, the target's [vocabulary, hidden] are used."""

    def __init__(
        self,
        shape: EagleShape,
        rotary: Rotary,
        embeddings: Tensor | None = None,
        lm_head: Tensor | None = None,
    ) -> None:
        super().__init__()
        block, vocab_size = shape.block, shape.vocab_size
        self.shape, self.rotary = shape, rotary
        self.kv_layers, self.kv_heads, self.head_dim = shape.layers, block.kv_heads, block.head_dim
        self.fc = nn.Linear(2 * block.hidden, block.hidden, bias=shape.fc_bias)
        self.layers = nn.ModuleList(
            DecoderBlock(block, input_norm=shape.norms or index > 0)
            for index in range(shape.layers)
        )
        norms = [RmsNorm(block.hidden, block.epsilon) if shape.norms else None for _ in range(2)]
        self.embedding_layernorm, self.pre_lm_head_layernorm = norms
        self.embed_tokens = nn.Embedding(vocab_size, block.hidden) if shape.own_embeddings else None
        self.lm_head = nn.Linear(block.hidden, vocab_size, bias=False) if shape.own_head else None
        self.target = Borrowed(
            None if shape.own_embeddings else embeddings, None if shape.own_head else lm_head
        )

    def embed(self, ids: Tensor) -> Tensor:
        return look_up(ids, self.embed_tokens, self.target)

    def enter(self, features: Tensor) -> Tensor:
        """The features are the states."""
        return features

    def step(
        self,
        embeds: Tensor,
        states: Tensor,
        attention: Attention,
        positions: Tensor,
        module: int = 0,
    ) -> Tensor:
        if self.embedding_layernorm is not None:
            embeds = self.embedding_layernorm(embeds)
        x: Tensor = self.fc(torch.cat([embeds, states], dim=-1))
        for index, layer in enumerate(self.layers):
            x = layer(x, index, attention, self.rotary, positions)
        return x if self.pre_lm_head_layernorm is None else self.pre_lm_head_layernorm(x)

    def logits(self, states: Tensor, columns: Tensor | None = None, module: int = 0) -> Tensor:
        return project(states, self.lm_head, self.target, columns)

    def draft_ids(self) -> Tensor | None:
        return None
