"""Medusa heads (arXiv 2401.10774), parameters named as FasterDecoding publishes them.

Head i is `{i}.{layer}.linear` for its residual blocks, then `{i}.{layers}` for its LM head. Heads
published without one use the target's. All of them read the target's hidden state behind its
final norm; head i proposes the token i + 2 places behind (the target itself gives the next).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from export.heads.head import Borrowed


@dataclass(frozen=True, slots=True)
class MedusaShape:
    """`heads` of `layers` residual blocks each."""

    hidden: int
    vocab_size: int
    heads: int
    layers: int = 1
    own_head: bool = False


class ResBlock(nn.Module):
    """Starts as the identity."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.act = nn.SiLU()
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = x + self.act(self.linear(x))
        return output


class Medusa(nn.Module):
    """Without LM heads of their own, all heads use the target's `lm_head` [vocabulary, hidden]."""

    def __init__(self, shape: MedusaShape, lm_head: Tensor | None = None) -> None:
        super().__init__()
        self.shape = shape
        # Children called "0", "1", ...: the published names have nothing before the number.
        for index in range(shape.heads):
            parts: list[nn.Module] = [ResBlock(shape.hidden) for _ in range(shape.layers)]
            if shape.own_head:
                parts.append(nn.Linear(shape.hidden, shape.vocab_size, bias=False))
            self.add_module(str(index), nn.Sequential(*parts))
        self.target = Borrowed(None, None if shape.own_head else lm_head)

    def states(self, hidden: Tensor, head: int) -> Tensor:
        """[..., hidden]: what the LM head of this head reads."""
        parts = self.get_submodule(str(head))
        assert isinstance(parts, nn.Sequential)
        for block in list(parts)[: self.shape.layers]:
            hidden = block(hidden)
        return hidden

    def logits(self, states: Tensor, head: int, columns: Tensor | None = None) -> Tensor:
        """[..., hidden] -> [..., vocabulary], or the given columns of it alone."""
        weight = self.head_weight(head)
        return F.linear(states, weight if columns is None else weight[columns])

    def head_weight(self, head: int) -> Tensor:
        """[vocabulary, hidden]."""
        if not self.shape.own_head:
            assert self.target.lm_head is not None, "neither the head nor its target has an LM head"
            return self.target.lm_head
        return self.get_parameter(f"{head}.{self.shape.layers}.weight")

    def forward(self, hidden: Tensor) -> Tensor:
        """[..., hidden] -> [heads, ..., vocabulary]."""
        heads = range(self.shape.heads)
        return torch.stack([self.logits(self.states(hidden, head), head) for head in heads])
