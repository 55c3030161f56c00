"""Chains on packed texts draft what a head unrolled over each text alone drafts."""

from __future__ import annotations

import torch

from export.training.chains import ChainAttention, read_entries
from tests.trainer_support import HIDDEN, packed, small_eagle3
from tests.unrolled_attention import UnrolledAttention

LENGTHS = (9, 12)
STEPS = 3


def _alone(head, ids, features):
    """States [steps][N, hidden] of the head's own unrolling, every place at once."""
    states, attention, found = head.enter(features)[None], UnrolledAttention(), []
    positions = torch.arange(len(ids))
    for step in range(STEPS):
        following = ids[(positions + step + 1).clamp_max(len(ids) - 1)]
        states = head.step(head.embed(following)[None], states, attention, positions + step)
        found.append(states[0])
    return found


def _chained(head, batch, anchors, keep=None):
    states = head.enter(batch.features)
    attention = ChainAttention(read_entries(head, batch, states), batch, anchors)
    states, found = states[anchors], []
    for step in range(STEPS):
        if step == 1 and keep is not None:
            attention.keep(keep)
            anchors, states = anchors[keep], states[keep]
        places, _ = batch.behind(anchors, step + 1)
        embeds = head.embed(batch.ids[places])[None]
        states = head.step(embeds, states[None], attention, batch.positions[anchors] + step)[0]
        found.append(states)
    return found


def test_chains_are_the_unrolled_head_of_each_text() -> None:
    head, batch = small_eagle3(), packed(LENGTHS, 3 * HIDDEN)
    anchors = torch.tensor([0, 3, 5, 9, 10, 17])
    with torch.no_grad():
        found = _chained(head, batch, anchors)
        for begin, end in batch.segments:
            alone = _alone(head, batch.ids[begin:end], batch.features[begin:end])
            own = (anchors >= begin) & (anchors < end)
            for step in range(STEPS):
                torch.testing.assert_close(found[step][own], alone[step][anchors[own] - begin])


def test_chains_that_end_early_leave_the_others_as_they_are() -> None:
    head, batch = small_eagle3(), packed(LENGTHS, 3 * HIDDEN)
    anchors, keep = torch.tensor([0, 3, 5, 9, 10, 17]), torch.tensor([1, 4, 5])
    with torch.no_grad():
        whole, part = _chained(head, batch, anchors), _chained(head, batch, anchors, keep)
    torch.testing.assert_close(part[2], whole[2][keep])


def test_gradients_reach_entries_of_earlier_places() -> None:
    head, batch = small_eagle3(), packed(LENGTHS, 3 * HIDDEN)
    batch.features.requires_grad_()
    _chained(head, batch, torch.tensor([5]))[0].sum().backward()
    moved = batch.features.grad.abs().sum(-1) > 0
    assert moved.tolist() == [True] * 6 + [False] * (sum(LENGTHS) - 6)
