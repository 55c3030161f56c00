"""The sampled cross entropy against the whole one, and what the target's columns mean."""

from __future__ import annotations

import torch

from export.training.losses import Teacher, candidates, cross_entropy, teach

SIZE = 50


def _generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _teacher(sharpness: float = 1.0) -> Teacher:
    ids = torch.tensor([[3, 45, 7], [45, 46, 9], [1, 2, 4]])
    logs = torch.log(torch.tensor([[0.5, 0.25, 0.05], [0.9, 0.08, 0.01], [0.4, 0.3, 0.2]]))
    return teach(ids, logs, torch.tensor([1.0, 1.0, 0.5]), sharpness=sharpness)


def test_the_target_is_renormalised_over_what_is_known() -> None:
    torch.testing.assert_close(_teacher().chances[0], torch.tensor([0.625, 0.3125, 0.0625]))


def test_sharpness_draws_to_the_first_choice() -> None:
    chances = _teacher(sharpness=2.0).chances[0]
    torch.testing.assert_close(chances[0] / chances[1], torch.tensor(4.0))


def test_all_ids_give_the_whole_cross_entropy() -> None:
    teacher, logits = _teacher(), torch.randn(3, SIZE, generator=_generator())
    chosen = candidates(teacher.ids, torch.tensor([0]), SIZE, sampled=SIZE, generator=_generator())
    assert chosen.ids.tolist() == list(range(SIZE))
    expected = torch.zeros(3, SIZE)
    for row in range(3):
        for column, chance in zip(teacher.ids[row], teacher.chances[row], strict=True):
            expected[row, column] += chance
    whole = -(expected * logits.log_softmax(-1)).sum(-1)
    torch.testing.assert_close(cross_entropy(logits, chosen, teacher), whole)


def test_the_sample_stands_for_what_is_left_out() -> None:
    teacher, logits = _teacher(), torch.randn(3, SIZE, generator=_generator())
    sums = torch.zeros(3)
    for seed in range(400):
        chosen = candidates(
            teacher.ids, torch.tensor([0, 5]), SIZE, sampled=8, generator=_generator(seed)
        )
        assert {0, 5, 3, 7, 9, 1, 2, 4, 45, 46} <= set(chosen.ids.tolist())
        assert len(chosen.ids) == 18
        sums += (logits[:, chosen.ids] + chosen.shares).exp().sum(-1)
    torch.testing.assert_close(sums / 400, logits.exp().sum(-1), rtol=0.03, atol=0.0)
