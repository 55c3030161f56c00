"""Heads as trained: unrolled from every position at once, and few columns of their logits."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from export.heads import layouts
from export.heads.attention import CausalAttention
from export.heads.eagle import Eagle
from export.heads.eagle3 import Eagle3, Eagle3Shape
from export.heads.medusa import Medusa, MedusaShape
from export.heads.mtp import Mtp
from tests.head_checkpoints import HIDDEN, MEDUSA, STEPPING, VOCABULARY, make_facts
from tests.unrolled_attention import UnrolledAttention

BATCH, COUNT, STEPS, TOLERANCE = 2, 7, 3, 1e-4


def stepping(layout: str, directory: Path) -> Eagle | Eagle3 | Mtp:
    head, _ = layouts.read(STEPPING[layout]().save(directory), make_facts())
    assert not isinstance(head, Medusa)
    return head


def features(head: Eagle | Eagle3 | Mtp, count: int = COUNT) -> Tensor:
    width = 3 * HIDDEN if isinstance(head, Eagle3) else HIDDEN
    return torch.randn(BATCH, count, width, generator=torch.Generator().manual_seed(1))


def tokens(steps: int = STEPS, count: int = COUNT) -> Tensor:
    generator = torch.Generator().manual_seed(2)
    return torch.randint(VOCABULARY, (steps, BATCH, count), generator=generator)


@pytest.mark.parametrize(
    "layout", ["eagle3", "eagle3-speculators-variants", "eagle", "eagle-two-layers", "glm", "mimo"]
)
def test_unrolled_steps_are_drafts_from_every_position(layout: str, tmp_path: Path) -> None:
    """All positions draft at once; each must get what it would get on its own behind its prefix."""
    head, ids, positions = stepping(layout, tmp_path), tokens(), torch.arange(COUNT)
    given = features(head)
    attention, states, unrolled = UnrolledAttention(), head.enter(given), []
    for step in range(STEPS):
        states = head.step(head.embed(ids[step]), states, attention, positions + step)
        unrolled.append(states)
    for at in range(COUNT):
        alone, prefix = CausalAttention(), slice(0, at + 1)
        state = head.step(
            head.embed(ids[0][:, prefix]), head.enter(given[:, prefix]), alone, positions[prefix]
        )[:, -1:]
        for step in range(STEPS):
            if step:
                token = head.embed(ids[step][:, at : at + 1])
                state = head.step(token, state, alone, positions[at : at + 1] + step)
            assert (unrolled[step][:, at] - state[:, 0]).abs().max() < TOLERANCE


def test_gradients_flow_through_all_steps(tmp_path: Path) -> None:
    head, ids = stepping("eagle3", tmp_path), tokens()
    head.requires_grad_(True)
    attention, states = UnrolledAttention(), head.enter(features(head))
    for step in range(STEPS):
        states = head.step(head.embed(ids[step]), states, attention, torch.arange(COUNT) + step)
    head.logits(states).square().sum().backward()
    for name, parameter in head.named_parameters():
        assert parameter.grad is not None, name
        assert float(parameter.grad.abs().max()) > 0, name


@pytest.mark.parametrize("layout", ["eagle3", "eagle3-without-lm-head", "eagle", "deepseek"])
def test_some_columns_are_those_of_all(layout: str, tmp_path: Path) -> None:
    head, states = stepping(layout, tmp_path), torch.randn(BATCH, 2, HIDDEN)
    columns = torch.tensor([5, 0, 7])
    part = head.logits(states, columns)
    assert part.shape == (BATCH, 2, 3)
    assert (part - head.logits(states)[..., columns]).abs().max() < TOLERANCE


def test_some_columns_of_medusa_heads(tmp_path: Path) -> None:
    for layout, make in MEDUSA.items():
        head, _ = layouts.read(make().save(tmp_path / layout), make_facts())
        assert isinstance(head, Medusa)
        hidden, columns = torch.randn(BATCH, HIDDEN), torch.tensor([9, 1])
        for index, logits in enumerate(head(hidden)):
            part = head.logits(head.states(hidden, index), index, columns)
            assert (part - logits[:, columns]).abs().max() < TOLERANCE


def test_new_medusa_heads_begin_as_the_target() -> None:
    facts = make_facts()
    head = Medusa(MedusaShape(HIDDEN, VOCABULARY, heads=2), facts.lm_head)
    hidden = torch.randn(3, HIDDEN)
    for logits in head(hidden):
        assert (logits - hidden @ facts.lm_head.T).abs().max() < TOLERANCE


def test_what_is_the_targets_is_not_in_the_state() -> None:
    """Neither saved nor trained; but moved to another device along with the head."""
    facts = make_facts()
    shape = Eagle3Shape(facts.block, VOCABULARY, taps=3 * HIDDEN, own_head=False)
    head = Eagle3(shape, facts.rotary(), torch.tensor([1, 5]), facts.embeddings, facts.lm_head)
    names = head.state_dict().keys() | dict(head.named_parameters()).keys()
    assert not any("target" in name or "rotary" in name for name in names)
    assert {"target.embeddings", "target.lm_head", "rotary.cos"} <= dict(
        head.named_buffers()
    ).keys()
    states = torch.randn(1, HIDDEN)
    expected = head.norm(states) @ facts.lm_head[[1, 5]].T
    assert (head.logits(states) - expected).abs().max() < TOLERANCE


def test_states_need_no_fusing_twice() -> None:
    facts = make_facts()
    shape = Eagle3Shape(facts.block, VOCABULARY, taps=3 * HIDDEN)
    head, states = Eagle3(shape, facts.rotary()), torch.randn(2, HIDDEN)
    assert head.enter(states) is states
