"""What a head proposes, in torch: the reference that its exported graph is held to."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from export.heads.attention import CausalAttention
from export.heads.eagle import Eagle
from export.heads.eagle3 import Eagle3
from export.heads.medusa import Medusa
from export.heads.mtp import Mtp


@torch.no_grad()
def draft_chain(
    head: Eagle | Eagle3 | Mtp, tokens: Sequence[int], features: Tensor, steps: int
) -> tuple[list[int], Tensor]:
    """The `steps` tokens a head proposes behind `tokens`, greedily, and the logits of each.

    `features` [at least len(tokens) - 1, F] are the target's at each token but the last, which the
    target has not seen. Logits are [steps, draft vocabulary].
    """
    count = len(tokens) - 1
    assert count > 0, "a draft needs a token behind the first feature"
    modules = head.shape.modules if isinstance(head, Mtp) else 1
    known, ids = list(tokens), head.draft_ids()
    states = head.enter(features[:count])[None]
    attention, positions = CausalAttention(), torch.arange(count)
    rows: list[Tensor] = []
    for step in range(steps):
        if step < modules:
            fed, at = known[1 + step :], positions
        else:
            fed, at = known[-1:], positions[-1:] + 1 + step - modules
            states = states[:, -1:]
        states = head.step(head.embed(torch.tensor([fed])), states, attention, at, step)
        rows.append(head.logits(states[0, -1], module=step))
        best = int(rows[-1].argmax())
        known.append(best if ids is None else int(ids[best]))
    return known[len(tokens) :], torch.stack(rows)


@torch.no_grad()
def draft_medusa(head: Medusa, feature: Tensor) -> tuple[list[int], Tensor]:
    """Each head's best token for the last hidden state [hidden], and all logits [heads, V]."""
    logits = head(feature)
    return [int(best) for best in logits.argmax(-1)], logits
