"""Rounds, survival and agreement are counted as they are defined."""

from __future__ import annotations

import numpy as np
import torch

from export.training.report import Tally, evaluate, table
from tests.trainer_support import HIDDEN, packed, small_task
from tests.unrolled_attention import UnrolledAttention

RIGHT = np.array([[1, 1, 0], [1, 0, 1], [0, 1, 1], [0, 0, 0], [1, 1, 1]], dtype=bool)


def test_a_round_begins_where_the_one_before_ended() -> None:
    tally = Tally()
    tally.add(np.array([4, 5, 6, 7, 20]), RIGHT)
    assert tally.right.tolist() == [3, 3, 3]
    assert tally.survived.tolist() == [3, 2, 1]
    # From 4 two drafts are right: the next round begins at 7, then comes another answer.
    assert (tally.rounds, tally.tokens) == (3, 3 + 1 + 4)
    summary = tally.summary()
    assert summary["tau"] == round(8 / 3, 4)
    assert summary["survival"] == [0.6, 0.4, 0.2]
    assert "tau 2.667" in table({"all": tally})


def test_agreement_is_with_the_targets_first_choice() -> None:
    task, batch = small_task(), packed((9, 12), 3 * HIDDEN)
    with torch.no_grad():
        anchors, right = task.draft(batch, 2)
    assert anchors.tolist() == [*range(7), *range(9, 19)]
    head = task.module
    states = head.enter(batch.features[:9])[None]
    attention, positions = UnrolledAttention(), torch.arange(9)
    for step in range(2):
        following = batch.ids[(positions + step + 1).clamp_max(8)]
        states = head.step(head.embed(following)[None], states, attention, positions + step)
        best = head.logits(states)[0].argmax(-1)
        for place in range(7):
            known = place + step + 1 < 8
            first = batch.top_ids[min(place + step + 1, 7), 0]
            assert bool(right[place, step]) == (known and bool(best[place] == first))


class _Fixed:
    """A store of one text, whose only item has answers."""

    def batch(self, items, columns):
        return packed((9,), 3 * HIDDEN)


def test_kinds_are_added_up() -> None:
    class Item:
        kind, answers = "chat", 9

    tallies = evaluate(small_task(), _Fixed(), [Item(), Item()], 2, torch.device("cpu"))
    assert tallies["chat"].places == tallies["all"].places == 14
