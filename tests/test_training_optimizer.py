"""Muon's updates are near orthogonal, AdamW's are torch's, and both states survive a save."""

from __future__ import annotations

import torch
from torch import nn

from export.training.optimizer import Average, Optimizer, Rates, orthogonal


def _module() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(12, 8), nn.LayerNorm(8))


def _learn(module: nn.Module, optimizer: Optimizer, seed: int) -> None:
    optimizer.zero()
    x = torch.randn(16, 12, generator=torch.Generator().manual_seed(seed))
    (module(x)[:, 0] - x[:, 1]).square().mean().backward()
    optimizer.step(1.0)


def test_singular_values_are_set_near_one() -> None:
    for shape in ((8, 20), (20, 8), (16, 16)):
        matrix = torch.randn(shape, generator=torch.Generator().manual_seed(1))
        values = torch.linalg.svdvals(orthogonal(matrix))
        assert values.min() > 0.5
        assert values.max() < 1.3
        left, _, right = torch.linalg.svd(matrix, full_matrices=False)
        cosine = (orthogonal(matrix) * (left @ right)).sum() / len(values)
        assert cosine > 0.7


def test_a_matrix_moves_by_its_rate_in_all_directions() -> None:
    module = _module()
    before = module[0].weight.detach().clone()
    _learn(module, Optimizer(module, Rates(matrices=0.01, decay=0.0)), seed=0)
    moved = torch.linalg.svdvals(module[0].weight.detach() - before) / (0.01 * 0.2 * 12**0.5)
    assert 0.5 < moved[0] < 1.3


def test_the_rest_is_torchs_adam() -> None:
    mine, theirs = _module(), _module()
    optimizer = Optimizer(mine, Rates(others=0.01), muon=False)
    reference = torch.optim.Adam(theirs.parameters(), lr=0.01, betas=(0.9, 0.98), eps=1e-8)
    for seed in range(4):
        _learn(mine, optimizer, seed)
        reference.zero_grad()
        x = torch.randn(16, 12, generator=torch.Generator().manual_seed(seed))
        (theirs(x)[:, 0] - x[:, 1]).square().mean().backward()
        reference.step()
    for own, other in zip(mine.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(own, other, rtol=1e-4, atol=1e-5)


def test_a_restored_optimizer_goes_on_alike() -> None:
    first, second = _module(), _module()
    original, restored = Optimizer(first, Rates()), Optimizer(second, Rates())
    _learn(first, original, 0)
    second.load_state_dict(first.state_dict())
    restored.load_state_dict(original.state_dict())
    _learn(first, original, 1)
    _learn(second, restored, 1)
    for own, other in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(own, other)


def test_the_average_follows_and_swaps() -> None:
    module = _module()
    average = Average(module, decay=0.5)
    start = module[0].weight.detach().clone()
    with torch.no_grad():
        module[0].weight += 1.0
    average.update(module, steps=100)
    average.swap(module)
    torch.testing.assert_close(module[0].weight.detach(), start + 0.5)
    average.swap(module)
    torch.testing.assert_close(module[0].weight.detach(), start + 1.0)
