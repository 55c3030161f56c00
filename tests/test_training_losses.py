"""The sampled cross entropy against the whole one, and what the target's columns mean."""

from __future__ import annotations

import torch

from export.training.losses import candidates, cross_entropy, teach

SIZE = 50


def _generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _teacher(sharpness: float = 1.0):
    column_of = torch.arange(60)
    column_of[SIZE:] = -1
    ids = torch.tensor([[3, 55, 7], [55, 56, 9], [1, 2, 4]])
    logs = torch.log(torch.tensor([[0.5, 0.25, 0.125], [0.9, 0.08, 0.01], [0.4, 0.3, 0.2]]))
    return teach(ids, logs, torch.tensor([1.0, 1.0, 0.5]), column_of, sharpness=sharpness)


def test_the_target_is_renormalised_over_the_draft_vocabulary() -> None:
    teacher = _teacher()
    assert teacher.columns.tolist() == [[3, -1, 7], [-1, -1, 9], [1, 2, 4]]
    torch.testing.assert_close(teacher.chances[0], torch.tensor([0.8, 0.0, 0.2]))
    assert teacher.chances[1].sum() == 0, "hardly any of its mass is in the draft vocabulary"
    assert teacher.weights.tolist() == [1.0, 0.0, 0.5]
    assert teacher.best().tolist() == [3, -1, 1]


def test_sharpness_draws_to_the_first_choice() -> None:
    torch.testing.assert_close(
        _teacher(sharpness=2.0).chances[0], torch.tensor([16 / 17, 0.0, 1 / 17])
    )


def test_all_columns_give_the_whole_cross_entropy() -> None:
    teacher, logits = _teacher(), torch.randn(3, SIZE, generator=_generator())
    chosen = candidates(
        teacher.columns, torch.tensor([0]), SIZE, sampled=SIZE, generator=_generator()
    )
    assert chosen.columns.tolist() == list(range(SIZE))
    expected = torch.zeros(3, SIZE)
    for row in range(3):
        for column, chance in zip(teacher.columns[row], teacher.chances[row], strict=True):
            expected[row, column] += chance if column >= 0 else 0
    whole = -(expected * logits.log_softmax(-1)).sum(-1)
    torch.testing.assert_close(cross_entropy(logits, chosen, teacher), whole)


def test_the_sample_stands_for_what_is_left_out() -> None:
    teacher, logits = _teacher(), torch.randn(3, SIZE, generator=_generator())
    sums = torch.zeros(3)
    for seed in range(400):
        chosen = candidates(
            teacher.columns, torch.tensor([0, 5]), SIZE, sampled=8, generator=_generator(seed)
        )
        assert {0, 5, 3, 7, 9, 1, 2, 4} <= set(chosen.columns.tolist())
        assert len(chosen.columns) == 16
        sums += (logits[:, chosen.columns] + chosen.shares).exp().sum(-1)
    torch.testing.assert_close(sums / 400, logits.exp().sum(-1), rtol=0.03, atol=0.0)


def test_places_without_a_target_have_no_loss_and_no_gradient() -> None:
    logits = torch.randn(3, SIZE, generator=_generator(), requires_grad=True)
    teacher = _teacher()
    chosen = candidates(
        teacher.columns, torch.tensor([0]), SIZE, sampled=50, generator=_generator()
    )
    cross_entropy(logits, chosen, teacher).sum().backward()
    assert logits.grad[1].abs().sum() == 0
    assert logits.grad[0].abs().sum() > 0
