"""Multi-token prediction modules, parameters named as in the checkpoints that hold them.

Two families. DeepSeek-V3 (arXiv 2412.19437) and GLM-4.x: modules are layers n, n + 1, ... behind
the target's n; `eh_proj` reads token, then state; the next state is the layer's output, ahead of
`shared_head.norm`, which belongs to the LM head (the paper's equations 21 to 23, and vLLM's
`deepseek_mtp` and `glm4_moe_mtp`). MiMo: `mtp_layers.{i}`; `input_proj` reads state, then token;
the next state is behind `final_layernorm`, and the target's LM head reads it (vLLM's `mimo_mtp`).
The first state is the target's hidden state behind its final norm in both.

Draft step k uses module k; the last one (often the only one) is applied again for the steps behind
it. Each module has its own K/V: module k has an entry for every position, which pairs the state
that module k - 1 gave there with the token k + 1 places behind.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from export.heads.attention import Attention, Rotary
from export.heads.block import BlockShape, DecoderBlock, RmsNorm
from export.heads.head import Borrowed, look_up, project

Family = Literal["deepseek", "mimo"]


@dataclass(frozen=True, slots=True)
class MtpShape:
    """`first` is the number of the first module's layer (for `deepseek`: the target's layers)."""

    block: BlockShape
    vocab_size: int
    family: Family = "deepseek"
    modules: int = 1
    first: int = 0
    own_embeddings: bool = False
    own_head: bool = False


class SharedHead(nn.Module):
    def __init__(self, shape: MtpShape) -> None:
        super().__init__()
        block = shape.block
        self.norm = RmsNorm(block.hidden, block.epsilon)
        self.head = (
            nn.Linear(block.hidden, shape.vocab_size, bias=False) if shape.own_head else None
        )


class DeepSeekModule(DecoderBlock):
    def __init__(self, shape: MtpShape) -> None:
        block = shape.block
        super().__init__(block)
        self.enorm = RmsNorm(block.hidden, block.epsilon)
        self.hnorm = RmsNorm(block.hidden, block.epsilon)
        self.eh_proj = nn.Linear(2 * block.hidden, block.hidden, bias=False)
        self.shared_head = SharedHead(shape)
        self.embed_tokens = (
            nn.Embedding(shape.vocab_size, block.hidden) if shape.own_embeddings else None
        )

    def join(self, embeds: Tensor, states: Tensor) -> Tensor:
        joined: Tensor = self.eh_proj(torch.cat([self.enorm(embeds), self.hnorm(states)], dim=-1))
        return joined

    def leave(self, x: Tensor) -> Tensor:
        """The layer's output as the next state."""
        return x

    def read(self, states: Tensor) -> Tensor:
        """The state as the LM head reads it."""
        read: Tensor = self.shared_head.norm(states)
        return read

    @property
    def lm_head(self) -> nn.Linear | None:
        return self.shared_head.head


class MimoModule(DecoderBlock):
    embed_tokens: nn.Embedding | None = None
    lm_head: nn.Linear | None = None

    def __init__(self, shape: MtpShape) -> None:
        block = shape.block
        super().__init__(block)
        self.token_layernorm = RmsNorm(block.hidden, block.epsilon)
        self.hidden_layernorm = RmsNorm(block.hidden, block.epsilon)
        self.input_proj = nn.Linear(2 * block.hidden, block.hidden, bias=False)
        self.final_layernorm = RmsNorm(block.hidden, block.epsilon)

    def join(self, embeds: Tensor, states: Tensor) -> Tensor:
        normed = [self.hidden_layernorm(states), self.token_layernorm(embeds)]
        joined: Tensor = self.input_proj(torch.cat(normed, dim=-1))
        return joined

    def leave(self, x: Tensor) -> Tensor:
        """The layer's output as the next state."""
        state: Tensor = self.final_layernorm(x)
        return state

    def read(self, states: Tensor) -> Tensor:
        """The state as the LM head reads it."""
        return states


class Mtp(nn.Module):
    """Without embeddings or LM head of its own, the target's [vocabulary, hidden] are used."""

    def __init__(
        self,
        shape: MtpShape,
        rotary: Rotary,
        embeddings: Tensor | None = None,
        lm_head: Tensor | None = None,
    ) -> None:
        super().__init__()
        block = shape.block
        self.shape, self.rotary = shape, rotary
        self.kv_layers, self.kv_heads, self.head_dim = shape.modules, block.kv_heads, block.head_dim
        kind, name = (
            (DeepSeekModule, "layers") if shape.family == "deepseek" else (MimoModule, "mtp_layers")
        )
        modules = {str(shape.first + index): kind(shape) for index in range(shape.modules)}
        self.model = nn.ModuleDict({name: nn.ModuleDict(modules)})
        self.target = Borrowed(
            None if shape.own_embeddings else embeddings, None if shape.own_head else lm_head
        )

    def module_of(self, step: int) -> DeepSeekModule | MimoModule:
        name = "layers" if self.shape.family == "deepseek" else "mtp_layers"
        number = self.shape.first + min(step, self.shape.modules - 1)
        found = self.model.get_submodule(f"{name}.{number}")
        assert isinstance(found, DeepSeekModule | MimoModule)
        return found

    def embed(self, ids: Tensor) -> Tensor:
        """All modules share the first one's embeddings."""
        return look_up(ids, self.module_of(0).embed_tokens, self.target)

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
        used, layer = self.module_of(module), min(module, self.shape.modules - 1)
        x = used(used.join(embeds, states), layer, attention, self.rotary, positions)
        return used.leave(x)

    def logits(self, states: Tensor, columns: Tensor | None = None, module: int = 0) -> Tensor:
        used = self.module_of(module)
        return project(used.read(states), used.lm_head, self.target, columns)

    def draft_ids(self) -> Tensor | None:
        return None
