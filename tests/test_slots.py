"""Slots and the pool that chooses them for prompts."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from models.memory import PAD_TOKENS
from models.package import load_package
from models.providers import select_provider
from models.slots import COPY_WORTHWHILE, Lease, Slot, SlotPool, copy_prefix, make_slot

CONTEXT = 100


def bare_slots(count: int) -> list[Slot]:
    return [Slot(index, CONTEXT, ()) for index in range(count)]


def hold(slot: Slot, tokens: Sequence[int]) -> None:
    slot.truncate(0)
    slot.commit(tokens)


def used(pool: SlotPool, tokens: Sequence[int], owner: str | None = None) -> Slot:
    """A request of `tokens` that came and went."""
    lease = pool.acquire((*tokens, 0), owner=owner)
    assert lease is not None
    lease.slot.commit(tokens[lease.shared :])
    pool.release(lease.slot)
    return lease.slot


def numbers(start: int, count: int) -> list[int]:
    return list(range(start, start + count))


def test_committing_and_truncating_move_the_length() -> None:
    (slot,) = bare_slots(1)
    slot.commit((5, 6, 7))
    slot.commit((8,))
    assert slot.tokens.tolist() == [5, 6, 7, 8]
    slot.truncate(2)
    slot.commit((9,))
    assert slot.tokens.tolist() == [5, 6, 9]
    assert (slot.length, slot.room) == (3, CONTEXT - 3)


def test_a_tree_ends_what_is_exact() -> None:
    """What follows a tree's tokens attends to them, so it is not exact either."""
    (slot,) = bare_slots(1)
    slot.commit((5, 6, 7))
    slot.commit((8, 9), exact=False)
    slot.commit((10,))
    assert (slot.length, slot.exact_length) == (6, 3)
    slot.truncate(5)
    assert slot.exact_length == 3
    slot.truncate(2)
    slot.commit((7,))
    assert (slot.length, slot.exact_length) == (3, 3)


@pytest.mark.parametrize("can_copy", [True, False])
def test_only_exact_tokens_are_shared(can_copy: bool) -> None:
    """A promise of bit-exact answers cannot be built on a tree's K/V."""
    pool = SlotPool(bare_slots(1), can_copy=can_copy)
    lease = pool.acquire(numbers(0, 31))
    assert lease is not None
    lease.slot.commit(numbers(0, 20))
    lease.slot.commit(numbers(20, 10), exact=False)
    pool.release(lease.slot)
    again = pool.acquire(numbers(0, 40))
    assert again is not None
    assert (again.shared, again.slot.length) == (20, 20)


def test_nothing_is_committed_past_the_end() -> None:
    (slot,) = bare_slots(1)
    slot.commit([1] * CONTEXT)
    with pytest.raises(AssertionError, match="past the end"):
        slot.commit((1,))
    with pytest.raises(AssertionError, match="only be shortened"):
        slot.truncate(CONTEXT + 1)


@pytest.mark.parametrize(
    ("held", "asked", "shared"),
    [([], [1, 2], 0), ([1, 2, 3], [1, 2], 2), ([1, 2], [1, 2, 3], 2), ([1, 9], [1, 2], 1)],
)
def test_common_prefix(held: list[int], asked: list[int], shared: int) -> None:
    (slot,) = bare_slots(1)
    slot.commit(held)
    assert slot.common_prefix(np.array(asked, dtype=np.int64)) == shared


def test_truncated_tokens_are_no_prefix_any_more() -> None:
    (slot,) = bare_slots(1)
    slot.commit((1, 2, 3))
    slot.truncate(1)
    assert slot.common_prefix(np.array([1, 2, 3])) == 1


def test_the_same_conversation_is_continued_in_its_slot() -> None:
    pool = SlotPool(bare_slots(3), can_copy=True)
    first = used(pool, numbers(0, 40))
    used(pool, numbers(500, 40))
    lease = pool.acquire((*numbers(0, 40), 7, 8, 9))
    assert lease == Lease(first, shared=40, source=None)
    assert first.length == 40


def test_the_last_token_of_a_prompt_is_never_shared() -> None:
    pool = SlotPool(bare_slots(1), can_copy=True)
    slot = used(pool, numbers(0, 40))
    lease = pool.acquire(numbers(0, 40))
    assert lease == Lease(slot, shared=39, source=None)
    assert slot.length == 39


def test_a_short_shared_prefix_leaves_the_other_conversation_warm() -> None:
    """Two conversations with one system prompt: the second copies it into a slot of its own."""
    pool = SlotPool(bare_slots(2), can_copy=True)
    system = numbers(0, COPY_WORTHWHILE)
    first = used(pool, [*system, *numbers(100, 40)])
    lease = pool.acquire((*system, *numbers(200, 5)))
    assert lease is not None
    assert lease.slot is not first
    assert (lease.shared, lease.source) == (COPY_WORTHWHILE, first)
    assert lease.slot.tokens.tolist() == system
    assert first.length == COPY_WORTHWHILE + 40


def test_a_prefix_too_short_to_copy_is_computed_again() -> None:
    pool = SlotPool(bare_slots(2), can_copy=True)
    system = numbers(0, COPY_WORTHWHILE - 1)
    first = used(pool, [*system, *numbers(100, 40)])
    lease = pool.acquire((*system, *numbers(200, 5)))
    assert lease is not None
    assert lease.slot is not first
    assert (lease.shared, lease.source, lease.slot.length) == (0, None, 0)


def test_a_busy_request_lends_its_prefix() -> None:
    pool = SlotPool(bare_slots(2), can_copy=True)
    busy = pool.acquire((*numbers(0, 30), 1))
    assert busy is not None
    busy.slot.commit(numbers(0, 30))
    lease = pool.acquire((*numbers(0, 30), 2))
    assert lease is not None
    assert (lease.shared, lease.source) == (30, busy.slot)
    assert busy.slot.length == 30


def test_without_copies_the_best_free_slot_is_shortened() -> None:
    """On a device: a little shared is better than nothing."""
    pool = SlotPool(bare_slots(2), can_copy=False)
    first = used(pool, [*numbers(0, 20), *numbers(100, 60)])
    lease = pool.acquire((*numbers(0, 20), 1, 2))
    assert lease == Lease(first, shared=20, source=None)
    assert first.length == 20


def test_the_slot_unused_longest_is_taken_for_a_new_conversation() -> None:
    pool = SlotPool(bare_slots(3), can_copy=True)
    slots = [used(pool, numbers(100 * index, 30)) for index in range(3)]
    assert len({id(slot) for slot in slots}) == 3
    used(pool, numbers(0, 30))  # the first conversation goes on
    lease = pool.acquire(numbers(900, 5))
    assert lease is not None
    assert (lease.slot, lease.shared, lease.slot.length) == (slots[1], 0, 0)


def test_reuse_can_be_switched_off() -> None:
    pool = SlotPool(bare_slots(1), can_copy=True)
    used(pool, numbers(0, 40))
    lease = pool.acquire(numbers(0, 40), reuse_prefix=False)
    assert lease is not None
    assert (lease.shared, lease.source, lease.slot.length) == (0, None, 0)


@pytest.mark.parametrize("can_copy", [True, False])
@pytest.mark.parametrize(("mine", "theirs"), [("a", "b"), ("a", None), (None, "a")])
def test_what_others_wrote_is_not_found(
    can_copy: bool, mine: str | None, theirs: str | None
) -> None:
    pool = SlotPool(bare_slots(2), can_copy=can_copy)
    first = used(pool, numbers(0, 40), theirs)
    lease = pool.acquire((*numbers(0, 40), 7), owner=mine)
    assert lease is not None
    assert (lease.shared, lease.source, lease.slot.length) == (0, None, 0)
    assert lease.slot is not first
    lease.slot.commit(numbers(0, 40))
    pool.release(lease.slot)
    again = pool.acquire((*numbers(0, 40), 8), owner=mine)
    assert again == Lease(lease.slot, shared=40, source=None)
    assert pool.acquire((*numbers(0, 40), 9), owner=theirs) == Lease(first, shared=40, source=None)


def test_a_busy_request_lends_others_nothing() -> None:
    pool = SlotPool(bare_slots(3), can_copy=True)
    busy = pool.acquire((*numbers(0, 30), 1), owner="a")
    assert busy is not None
    busy.slot.commit(numbers(0, 30))
    other = pool.acquire((*numbers(0, 30), 2), owner="b")
    own = pool.acquire((*numbers(0, 30), 2), owner="a")
    assert other is not None
    assert own is not None
    assert (other.shared, other.source) == (0, None)
    assert (own.shared, own.source) == (30, busy.slot)


def test_a_slot_that_was_taken_is_the_takers() -> None:
    pool = SlotPool(bare_slots(1), can_copy=True)
    used(pool, numbers(0, 40), "a")
    used(pool, numbers(0, 40), "b")
    lease = pool.acquire(numbers(0, 40), owner="a")
    assert lease is not None
    assert lease.shared == 0


def test_a_copied_prefix_is_whose_it_was_copied_for() -> None:
    pool = SlotPool(bare_slots(2), can_copy=True)
    used(pool, [*numbers(0, 30), *numbers(100, 40)], "a")
    copy = pool.acquire((*numbers(0, 30), 5), owner="a")
    assert copy is not None
    assert (copy.shared, copy.slot.owner) == (30, "a")
    pool.release(copy.slot)
    other = pool.acquire((*numbers(0, 30), 5), owner="b")
    assert other is not None
    assert (other.shared, other.source) == (0, None)


@pytest.mark.parametrize("can_copy", [True, False])
def test_prefixes_may_be_shared(can_copy: bool) -> None:
    pool = SlotPool(bare_slots(2), can_copy=can_copy, shared=True)
    first = used(pool, numbers(0, 40), "a")
    for owner in ("b", None):
        lease = pool.acquire((*numbers(0, 40), 7), owner=owner)
        assert lease == Lease(first, shared=40, source=None)
        pool.release(first)


@pytest.mark.parametrize("can_copy", [True, False])
def test_who_unused_longest_makes_room_whoever_asks(can_copy: bool) -> None:
    """Also where an owner's conversations all begin alike, as a template has them."""
    pool = SlotPool(bare_slots(3), can_copy=can_copy)
    begin = numbers(900, COPY_WORTHWHILE - 1)
    held = [
        used(pool, [*begin, *numbers(100 * index, 30)], owner)
        for index, owner in enumerate(("a", "b", "a"))
    ]
    taken = [
        used(pool, [*begin, *numbers(100 * index, 30)], owner)
        for index, owner in enumerate(("a", "a", "b", "b"), start=3)
    ]
    assert taken == [*held, held[0]]


def test_nothing_is_ever_found_that_its_owner_did_not_ask() -> None:
    draw = random.Random(5)
    pool = SlotPool(bare_slots(3), can_copy=True)
    asked: dict[str | None, list[list[int]]] = {"a": [], "b": [], None: []}
    found = 0
    for _ in range(600):
        owner = draw.choice(list(asked))
        tokens = [*numbers(0, draw.randrange(60)), *draw.choices(range(500, 503), k=20)]
        lease = pool.acquire(tokens, owner=owner)
        assert lease is not None
        known = max((common(tokens, each) for each in asked[owner]), default=0)
        assert lease.shared <= known
        found += lease.shared
        lease.slot.commit(tokens[lease.shared :])
        asked[owner].append(tokens)
        pool.release(lease.slot)
    assert found > 600, "and what it did ask is found"


def common(first: Sequence[int], second: Sequence[int]) -> int:
    pairs = zip(first, second, strict=False)
    return next(
        (at for at, (one, two) in enumerate(pairs) if one != two), min(map(len, (first, second)))
    )


def test_a_pool_counts_what_is_free_and_what_is_held() -> None:
    pool = SlotPool(bare_slots(2), can_copy=True)
    leases = [pool.acquire((1, 2)) for _ in range(2)]
    assert (pool.total, pool.free, pool.acquire((1, 2))) == (2, 0, None)
    for lease in leases:
        assert lease is not None
        lease.slot.commit((1, 2, 3))
        pool.release(lease.slot)
    assert (pool.free, pool.used_tokens) == (2, 6)
    with pytest.raises(AssertionError, match="released twice"):
        pool.release(leases[0].slot)  # type: ignore[union-attr]


def test_buffers_have_room_for_the_pad_behind_the_context(tiny_package: Path) -> None:
    spec = load_package(tiny_package).manifest.target
    slot = make_slot(0, spec, 32, select_provider("cpu", "cpu"))
    shapes = {tuple(buffer.shape()) for pair in slot.buffers for buffer in pair}
    assert shapes == {(1, spec.kv_heads, 32 + PAD_TOKENS, spec.head_dim)}
    assert len(slot.buffers) == spec.layers


def test_filling_a_lease_copies_the_shared_tokens_and_no_more(tiny_package: Path) -> None:
    spec = load_package(tiny_package).manifest.target
    provider = select_provider("cpu", "cpu")
    source, target, untouched = (make_slot(index, spec, 32, provider) for index in range(3))
    for number, pair in enumerate(source.buffers):
        for buffer in pair:
            buffer.numpy()[...] = number + 1
    Lease(untouched, shared=5).fill()
    copy_prefix(source, target, 5)
    for number, (pair, other) in enumerate(zip(target.buffers, untouched.buffers, strict=True)):
        for buffer, own in zip(pair, other, strict=True):
            assert (buffer.numpy()[:, :, :5] == number + 1).all()
            assert not buffer.numpy()[:, :, 5:].any()
            assert not own.numpy().any()
    Lease(untouched, shared=3, source=source).fill()
    assert (untouched.buffers[0][0].numpy()[:, :, :3] == 1).all()
