"""What is dropped of a head that was read: rows that pad, and copies of its target's tensors."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from export.heads.eagle import Eagle
from export.heads.eagle3 import Eagle3
from export.heads.facts import TargetFacts
from export.heads.medusa import Medusa
from export.heads.mtp import DeepSeekModule, MimoModule, Mtp

Head = Eagle | Eagle3 | Medusa | Mtp


def drop_padding(head: Head, vocab_size: int) -> None:
    """Take from a head's own LM heads the rows of ids that the target has no logits for."""
    kept = torch.arange(vocab_size)
    if isinstance(head, Eagle3) and head.d2t is not None:
        ids = head.draft_ids()
        assert ids is not None
        kept = (ids < vocab_size).nonzero().flatten()
        head.d2t = ids[kept] - torch.arange(len(kept))
    for linear in _own_heads(head):
        if len(kept) < linear.weight.shape[0]:
            linear.weight = nn.Parameter(linear.weight[kept], requires_grad=False)
            linear.out_features = len(kept)


def share_copies(head: Head, facts: TargetFacts) -> None:
    """Use the target's embeddings and LM head where the head's own are the same.

    Published heads often carry them along; a package then holds them once.
    """
    if isinstance(head, Medusa):
        return
    first = head.module_of(0) if isinstance(head, Mtp) else head
    if first.embed_tokens is not None and _same(first.embed_tokens.weight, facts.embeddings):
        first.embed_tokens = None
        head.target.embeddings = facts.embeddings
    if isinstance(head, Eagle3) and head.d2t is not None:
        return
    owners = (
        [head.module_of(step) for step in range(head.shape.modules)]
        if isinstance(head, Mtp)
        else [head]
    )
    linears = _own_heads(head)
    if linears and all(_same(linear.weight, facts.lm_head) for linear in linears):
        for owner in owners:
            _forget_head(owner)
        head.target.lm_head = facts.lm_head


def _forget_head(owner: Eagle | Eagle3 | DeepSeekModule | MimoModule) -> None:
    if isinstance(owner, DeepSeekModule):
        owner.shared_head.head = None
    elif not isinstance(owner, MimoModule):
        owner.lm_head = None


def _own_heads(head: Head) -> list[nn.Linear]:
    if isinstance(head, Medusa):
        shape = head.shape
        names = [f"{i}.{shape.layers}" for i in range(shape.heads)] if shape.own_head else []
        return [part for name in names if isinstance(part := head.get_submodule(name), nn.Linear)]
    if isinstance(head, Mtp):
        found = [head.module_of(step).lm_head for step in range(head.shape.modules)]
    else:
        found = [head.lm_head]
    return [linear for linear in found if linear is not None]


def _same(own: Tensor, target: Tensor) -> bool:
    return own.shape == target.shape and torch.equal(own, target)
