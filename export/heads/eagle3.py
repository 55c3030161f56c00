"""EAGLE-3 (arXiv 2503.01840), parameters named as SafeAILab publishes them.

The target's low, middle and high taps are fused once (`fc`); from then on a step reads the output
of the layer in the step before, ahead of `norm`, which is for the LM head alone. q, k and v read
the normed token (first) beside the normed state. The residual is the state itself.

The `speculators` project knows three variants: the residual is the normed state
(`norm_before_residual`), the taps are normed ahead of `fc` (`input_norm`), plain layers follow
the first (`more_layers`, there `layers.1` and up).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from export.heads.attention import Attention, Rotary
from export.heads.block import BlockShape, DecoderBlock, Mlp, RmsNorm, SelfAttention
from export.heads.head import Borrowed, look_up, project


@dataclass(frozen=True, slots=True)
class Eagle3Shape:
    """What differs between published EAGLE-3 heads, beside the sizes of their layers.

    `taps` is the width of what `fc` reads; `vocab_size` is the target's.
    """

    block: BlockShape
    vocab_size: int
    taps: int
    layers: int = 1
    own_embeddings: bool = False
    own_head: bool = True
    fc_bias: bool = False
    input_norm: bool = False
    norm_before_residual: bool = False


class MidLayer(nn.Module):
    """The layer whose q, k and v read token and state side by side."""

    def __init__(self, shape: BlockShape, *, norm_before_residual: bool) -> None:
        super().__init__()
        self.norm_before_residual = norm_before_residual
        self.hidden_norm = RmsNorm(shape.hidden, shape.epsilon)
        self.input_layernorm = RmsNorm(shape.hidden, shape.epsilon)
        self.self_attn = SelfAttention(shape, 2 * shape.hidden)
        self.post_attention_layernorm = RmsNorm(shape.hidden, shape.epsilon)
        self.mlp = Mlp(shape)

    def forward(
        self,
        embeds: Tensor,
        states: Tensor,
        attention: Attention,
        rotary: Rotary,
        positions: Tensor,
    ) -> Tensor:
        normed = self.hidden_norm(states)
        x = torch.cat([self.input_layernorm(embeds), normed], dim=-1)
        residual = normed if self.norm_before_residual else states
        x = residual + self.self_attn(x, 0, attention, rotary, positions)
        output: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return output


class Eagle3(nn.Module):
    """`d2t` holds, per draft token, its target id less its own; `t2d` marks the target ids known.

    Both are absent where the draft vocabulary (`draft_ids`, the target ids of its entries) is the
    whole one. Without embeddings or LM head of its own, the target's `embeddings` and `lm_head`
    [vocabulary, hidden] are used, of the latter the rows of the draft vocabulary.
    """

    d2t: Tensor | None
    t2d: Tensor | None

    def __init__(
        self,
        shape: Eagle3Shape,
        rotary: Rotary,
        draft_ids: Tensor | None = None,
        embeddings: Tensor | None = None,
        lm_head: Tensor | None = None,
    ) -> None:
        super().__init__()
        block, vocab_size = shape.block, shape.vocab_size
        self.shape, self.rotary = shape, rotary
        self.kv_layers, self.kv_heads, self.head_dim = shape.layers, block.kv_heads, block.head_dim
        self.input_norm = RmsNorm(shape.taps, block.epsilon) if shape.input_norm else None
        self.fc = nn.Linear(shape.taps, block.hidden, bias=shape.fc_bias)
        self.midlayer = MidLayer(block, norm_before_residual=shape.norm_before_residual)
        self.more_layers = nn.ModuleList(DecoderBlock(block) for _ in range(1, shape.layers))
        self.norm = RmsNorm(block.hidden, block.epsilon)
        count = vocab_size if draft_ids is None else int(draft_ids.shape[0])
        self.lm_head = nn.Linear(block.hidden, count, bias=False) if shape.own_head else None
        self.embed_tokens = nn.Embedding(vocab_size, block.hidden) if shape.own_embeddings else None
        self.register_buffer("d2t", None if draft_ids is None else draft_ids - torch.arange(count))
        self.register_buffer("t2d", None if draft_ids is None else _known(draft_ids, vocab_size))
        if lm_head is not None and draft_ids is not None and not shape.own_head:
            lm_head = lm_head[draft_ids]
        self.target = Borrowed(
            None if shape.own_embeddings else embeddings, None if shape.own_head else lm_head
        )

    def embed(self, ids: Tensor) -> Tensor:
        return look_up(ids, self.embed_tokens, self.target)

    def enter(self, features: Tensor) -> Tensor:
        """Taps as states. What is already as wide as a state is one."""
        if features.shape[-1] == self.shape.block.hidden:
            return features
        states: Tensor = self.fc(features if self.input_norm is None else self.input_norm(features))
        return states

    def step(
        self,
        embeds: Tensor,
        states: Tensor,
        attention: Attention,
        positions: Tensor,
        module: int = 0,
    ) -> Tensor:
        x: Tensor = self.midlayer(embeds, states, attention, self.rotary, positions)
        for index, layer in enumerate(self.more_layers, start=1):
            x = layer(x, index, attention, self.rotary, positions)
        return x

    def logits(self, states: Tensor, columns: Tensor | None = None, module: int = 0) -> Tensor:
        return project(self.norm(states), self.lm_head, self.target, columns)

    def draft_ids(self) -> Tensor | None:
        if self.d2t is None:
            return None
        return self.d2t + torch.arange(self.d2t.shape[0], device=self.d2t.device)


def _known(draft_ids: Tensor, vocab_size: int) -> Tensor:
    return torch.zeros(vocab_size, dtype=torch.bool).index_fill(0, draft_ids, True)
