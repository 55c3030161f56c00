"""A drafter's state follows the slot's tokens: shortened, copied, never ahead of them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from models.drafters.state import DrafterState
from models.providers import select_provider
from models.slots import Slot, SlotPool, adopt_drafters, copy_prefix
from tests.drafters_support import HEAD

CPU = select_provider("cpu", "cpu")
CONTEXT = 40


def state(lookahead: int, filled: float = 0.0) -> DrafterState:
    spec = dataclasses.replace(HEAD, lookahead=lookahead)
    made = DrafterState(spec, "fp32", CONTEXT, CPU)
    for pair in made.buffers:
        for buffer in pair:
            buffer.numpy()[...] = filled
    return made


def slot_with(lookahead: int, tokens: int, entries: int, filled: float = 0.0) -> Slot:
    slot = Slot(0, CONTEXT, ())
    slot.commit(range(tokens))
    slot.drafters["kind"] = state(lookahead, filled)
    slot.drafters["kind"].length = entries
    return slot


@pytest.mark.parametrize("lookahead", [0, 1])
def test_a_shortened_slot_keeps_the_entries_whose_tokens_it_keeps(lookahead: int) -> None:
    """Entry p of a feature drafter is made of the token behind it too."""
    for kept, entries in ((20, 20 - lookahead), (7, 7 - lookahead), (1, 1 - lookahead), (0, 0)):
        slot = slot_with(lookahead, 20, 21 - lookahead)
        slot.truncate(kept)
        assert slot.drafters["kind"].length == entries
    slot = slot_with(lookahead, 20, 4)
    slot.truncate(10)
    assert slot.drafters["kind"].length == 4


@pytest.mark.parametrize("lookahead", [0, 1])
def test_a_copied_prefix_brings_the_drafters_entries(lookahead: int) -> None:
    source = slot_with(lookahead, 20, 20 - lookahead, filled=1.0)
    target = Slot(1, CONTEXT, ())
    adopt_drafters(source, target, 12)
    copy_prefix(source, target, 12)
    own = target.drafters["kind"]
    assert own is not source.drafters["kind"]
    assert own.length == 12 - lookahead
    for pair in own.buffers:
        for buffer in pair:
            values = buffer.numpy()
            assert (values[:, :, : own.length] == 1).all()
            assert not values[:, :, own.length :].any()


def test_no_more_is_adopted_than_there_is() -> None:
    source = slot_with(1, 20, 5)
    target = slot_with(1, 20, 19)
    adopt_drafters(source, target, 12)
    assert target.drafters["kind"].length == 5
    assert source.drafters["kind"].length == 5


def test_what_a_source_does_not_have_is_not_copied() -> None:
    target = slot_with(1, 20, 0, filled=3.0)
    copy_prefix(Slot(1, CONTEXT, ()), target, 12)
    for pair in target.drafters["kind"].buffers:
        for buffer in pair:
            assert (buffer.numpy() == 3).all()


def test_a_lease_with_a_copied_prefix_counts_the_entries_at_once() -> None:
    """The source may be shortened for another request before the copy's turn comes."""
    slots = [Slot(index, CONTEXT, ()) for index in range(2)]
    pool = SlotPool(slots, can_copy=True)
    busy = pool.acquire((*range(30), 1))
    assert busy is not None
    busy.slot.commit(range(30))
    busy.slot.drafters["kind"] = state(1, filled=2.0)
    busy.slot.drafters["kind"].length = 29
    lease = pool.acquire((*range(25), 99))
    assert lease is not None
    assert lease.source is busy.slot
    assert lease.slot.drafters["kind"].length == 24
    busy.slot.truncate(3)
    assert busy.slot.drafters["kind"].length == 2
    lease.fill()
    assert lease.slot.drafters["kind"].length == 24
    assert (lease.slot.drafters["kind"].buffers[0][0].numpy()[:, :, :24] == 2).all()


def test_half_precision_has_half_precision() -> None:
    kinds = {"fp16": np.float16, "fp32": np.float32}
    for name, kind in kinds.items():
        made = DrafterState(HEAD, name, CONTEXT, CPU)
        assert {buffer.numpy().dtype for pair in made.buffers for buffer in pair} == {
            np.dtype(kind)
        }
