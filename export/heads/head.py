"""What heads that draft one token after another have in common."""

from __future__ import annotations

from typing import Protocol

import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from export.heads.attention import Attention


class SteppingHead(Protocol):
    """A head that drafts a token a step: the states of a step and its tokens give the next states.

    Leading dimensions of a tensor are [B, N]: texts, entries. The entry at a position pairs the
    state there with the token behind it, so that its next state predicts the token two behind.
    `module` is the number of the draft step, for heads that have a module for each; others ignore
    it. `kv_layers` counts the layers that have K/V.
    """

    @property
    def kv_layers(self) -> int: ...
    @property
    def kv_heads(self) -> int: ...
    @property
    def head_dim(self) -> int: ...

    def embed(self, ids: Tensor) -> Tensor:
        """[B, N] -> [B, N, hidden]."""

    def enter(self, features: Tensor) -> Tensor:
        """What the target gives, [..., F], as the states of the first step."""

    def step(
        self,
        embeds: Tensor,
        states: Tensor,
        attention: Attention,
        positions: Tensor,
        module: int = 0,
    ) -> Tensor:
        """embeds and states [B, N, hidden], positions [N] or [B, N] -> next states."""

    def logits(self, states: Tensor, columns: Tensor | None = None, module: int = 0) -> Tensor:
        """[..., hidden] -> [..., draft vocabulary], or the given columns of it alone."""

    def draft_ids(self) -> Tensor | None:
        """The target's id of each entry of the draft vocabulary; None: all, in order."""


class Borrowed(nn.Module):
    """Embeddings and LM head that a head takes from its target: frozen, not in its checkpoint."""

    embeddings: Tensor | None
    lm_head: Tensor | None

    def __init__(self, embeddings: Tensor | None, lm_head: Tensor | None) -> None:
        super().__init__()
        self.register_buffer("embeddings", embeddings, persistent=False)
        self.register_buffer("lm_head", lm_head, persistent=False)


def look_up(ids: Tensor, own: nn.Embedding | None, target: Borrowed) -> Tensor:
    weight = own.weight if own is not None else target.embeddings
    assert weight is not None, "neither the head nor its target has embeddings"
    return F.embedding(ids, weight)


def project(x: Tensor, own: nn.Linear | None, target: Borrowed, columns: Tensor | None) -> Tensor:
    weight = own.weight if own is not None else target.lm_head
    assert weight is not None, "neither the head nor its target has an LM head"
    return F.linear(x, weight if columns is None else weight[columns])
