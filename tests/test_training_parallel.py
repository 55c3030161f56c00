"""Medusa's heads and draft models answer for the places that they will be asked about."""

from __future__ import annotations

import torch

from export.heads.medusa import Medusa, MedusaShape
from export.training.drafting import Lesson, Vocabulary
from export.training.optimizer import Optimizer, Rates
from export.training.parallel import DraftModel, DraftTask, MedusaTask
from tests.trainer_support import BLOCK, HIDDEN, VOCABULARY, packed, small_rotary

LENGTHS = (9, 12)
LESSON = Lesson(step_weights=(1.0, 1.0), sampled=VOCABULARY)


def _vocabulary() -> Vocabulary:
    return Vocabulary(VOCABULARY, torch.arange(2))


def _medusa() -> MedusaTask:
    torch.manual_seed(0)
    heads = Medusa(MedusaShape(HIDDEN, VOCABULARY, 2), torch.randn(VOCABULARY, HIDDEN))
    for parameter in heads.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return MedusaTask(heads, slice(0, HIDDEN), _vocabulary())


def _draft() -> DraftTask:
    torch.manual_seed(0)
    words = torch.randn(2, VOCABULARY, HIDDEN)
    drafter = DraftModel(BLOCK, 2, small_rotary(4), words[0], words[1])
    return DraftTask(drafter, slice(0, 1), _vocabulary())


def _falls(task: MedusaTask | DraftTask) -> bool:
    batch, generator = packed(LENGTHS, HIDDEN), torch.Generator().manual_seed(0)
    optimizer, losses = Optimizer(task.module, Rates(matrices=0.05, others=0.05)), []
    for _ in range(50):
        outcome = task.learn(batch, LESSON, generator)
        optimizer.zero()
        outcome.loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step(1.0)
        losses.append(float(outcome.loss.detach()))
    return losses[-1] < 0.8 * losses[0]


def test_a_medusa_head_answers_for_its_distance() -> None:
    task, batch = _medusa(), packed(LENGTHS, HIDDEN)
    anchors, right = task.draft(batch, 2)
    assert anchors.tolist() == [*range(7), *range(9, 19)]
    with torch.no_grad():
        best = task.module(batch.features).argmax(-1)
    for row, anchor in enumerate(anchors.tolist()):
        end = 9 if anchor < 9 else 21
        for head in range(2):
            place = anchor + 1 + head
            known = place < end - 1
            first = batch.top_ids[batch.row_of[place], 0] if known else -1
            assert bool(right[row, head]) == bool(best[head, anchor] == first)


def test_all_heads_learn_the_places_they_are_judged_by() -> None:
    task = _medusa()
    outcome = task.learn(packed(LENGTHS, HIDDEN), LESSON, torch.Generator().manual_seed(0))
    assert outcome.tried == [17, 15]
    assert outcome.places == 17
    assert _falls(task)


def test_a_draft_model_reads_each_text_alone() -> None:
    task, batch = _draft(), packed(LENGTHS, 1)
    with torch.no_grad():
        together = task._states(batch)
        alone = task.module.states(batch.ids[9:])
    torch.testing.assert_close(together[9:], alone)


def test_a_draft_model_drafts_behind_the_token_it_was_given() -> None:
    task, batch = _draft(), packed(LENGTHS, 1)
    anchors, right = task.draft(batch, 2)
    with torch.no_grad():
        best = task.module.logits(task._states(batch)).argmax(-1)
    for row, anchor in enumerate(anchors.tolist()[:6]):
        place = anchor + 2
        first = batch.top_ids[batch.row_of[place], 0] if place < 8 else -1
        assert bool(right[row, 1]) == bool(best[place] == first)


def test_a_draft_model_learns() -> None:
    assert _falls(_draft())
