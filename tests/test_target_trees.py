"""Trees in the target: each path is what the chain of it is, and chains do not notice."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from models import memory
from models.errors import UserError
from models.package import Package
from models.providers import select_provider
from models.slots import Slot
from models.target import Row, RowResult, Target
from tests.engine_support import kv_bytes, make_prompt

CONTEXT = 96
PROMPT = make_prompt(30)
PARENTS = (-1, 0, 0, 1, 1, 2, 3, 3, 5, 8)
TOKENS = (PROMPT[-1], 11, 12, 13, 14, 15, 16, 17, 18, 19)
PAST = len(PROMPT) - 1


def wide_tree(width: int) -> tuple[int, ...]:
    return tuple((index - 1) // 2 for index in range(width))


@pytest.fixture(scope="module")
def target(package: Package) -> Target:
    target = Target(package, select_provider("cpu", "cpu"))
    assert target.has_trees
    assert not target.trees_loaded
    target.load_trees()
    assert target.trees_loaded
    return target


@pytest.fixture
def slots(target: Target) -> list[Slot]:
    slots = target.make_slots(4, CONTEXT)
    for slot in slots:
        prefill(target, slot)
    return slots


def prefill(target: Target, slot: Slot, tokens: Sequence[int] = PROMPT[:-1]) -> None:
    slot.truncate(0)
    target.run([Row(slot, tuple(tokens), logits=0)])
    slot.commit(tokens)


def path_of(parents: Sequence[int], leaf: int) -> list[int]:
    path = [leaf]
    while parents[path[0]] >= 0:
        path.insert(0, parents[path[0]])
    return path


def as_chain(target: Target, tokens: Sequence[int]) -> tuple[RowResult, NDArray[Any], Slot]:
    """Of `tokens` behind the prompt: results, whole rows, and the slot that holds them."""
    (slot,) = target.make_slots(1, CONTEXT)
    prefill(target, slot)
    (result,) = target.run([Row(slot, tuple(tokens), logits=len(tokens))])
    rows = np.stack([result.whole(index).copy() for index in range(len(tokens))])
    slot.commit(tokens)
    return result, rows, slot


def assert_paths(
    target: Target, tokens: Sequence[int], parents: Sequence[int], rows: NDArray[Any]
) -> None:
    for leaf in set(range(len(parents))) - set(parents):
        path = path_of(parents, leaf)
        _, expected, _ = as_chain(target, [tokens[node] for node in path])
        np.testing.assert_allclose(rows[path], expected, atol=1e-4)
        assert (rows[path].argmax(axis=1) == expected.argmax(axis=1)).all()


@pytest.mark.parametrize("rows", [1, 2, 3, 4])
def test_every_path_is_what_the_chain_of_it_is(
    target: Target, slots: list[Slot], rows: int
) -> None:
    results = target.run([Row(slot, TOKENS, len(TOKENS), PARENTS) for slot in slots[:rows]])
    found = [
        np.stack([result.whole(index) for index in range(len(TOKENS))]).copy() for result in results
    ]
    for logits, result in zip(found, results, strict=True):
        assert result.greedy == logits.argmax(axis=1).tolist()
        assert_paths(target, TOKENS, PARENTS, logits)


@pytest.mark.parametrize("width", [3, 16, 17, 31])
def test_trees_of_every_width(target: Target, slots: list[Slot], width: int) -> None:
    """Wide rows are padded behind the tree's last token."""
    parents = (-1, *wide_tree(width)[1:])
    tokens = (PROMPT[-1], *range(40, 39 + width))
    (result,) = target.run([Row(slots[0], tokens, width, parents)])
    found = np.stack([result.whole(index) for index in range(width)])
    assert_paths(target, tokens, parents, found.copy())


@pytest.mark.parametrize("rows", [2, 3, 4])
def test_chains_beside_a_tree_keep_their_bits(target: Target, slots: list[Slot], rows: int) -> None:
    chains = [(PROMPT[-1],), (PROMPT[-1], 5, 6), tuple(range(50, 67))][: rows - 1]
    expected = [as_chain(target, chain) for chain in chains]
    tree = Row(slots[0], TOKENS, len(TOKENS), PARENTS)
    beside = [Row(slot, chain, len(chain)) for slot, chain in zip(slots[1:], chains, strict=False)]
    first, *results = target.run([tree, *beside])
    assert first.greedy != []
    for row, result, (alone, _, held) in zip(beside, results, expected, strict=True):
        for name in ("top_values", "top_ids", "logsumexp"):
            assert getattr(result, name).tobytes() == getattr(alone, name).tobytes()
        row.slot.commit(row.tokens)
        assert kv_bytes(row.slot, row.slot.length) == kv_bytes(held, held.length)


@pytest.mark.parametrize("leaf", range(1, len(PARENTS)))
def test_an_accepted_path_goes_on_as_the_chain_does(
    target: Target, slots: list[Slot], leaf: int
) -> None:
    slot, path = slots[0], path_of(PARENTS, leaf)
    target.run([Row(slot, TOKENS, len(TOKENS), PARENTS)])
    before = [buffer.numpy().copy() for pair in slot.buffers for buffer in pair]
    target.compact(slot, PAST, path)
    slot.commit([TOKENS[node] for node in path], exact=False)
    _, _, chain = as_chain(target, [TOKENS[node] for node in path])
    buffers = [buffer.numpy() for pair in slot.buffers for buffer in pair]
    others = [buffer.numpy() for pair in chain.buffers for buffer in pair]
    for old, new, other in zip(before, buffers, others, strict=True):
        assert new[:, :, :PAST].tobytes() == old[:, :, :PAST].tobytes()
        for position, node in enumerate(path):
            assert new[:, :, PAST + position].tobytes() == old[:, :, PAST + node].tobytes()
        np.testing.assert_allclose(new[:, :, : slot.length], other[:, :, : slot.length], atol=1e-5)
    expected, found = (
        target.run([Row(one, (21, 22, 23), 3)])[0].whole(2).copy() for one in (chain, slot)
    )
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_a_path_that_was_not_moved_is_noticed(target: Target, slots: list[Slot]) -> None:
    """What the tests above compare would differ without compaction."""
    slot, path = slots[0], path_of(PARENTS, 9)
    target.run([Row(slot, TOKENS, len(TOKENS), PARENTS)])
    slot.commit([TOKENS[node] for node in path], exact=False)
    _, _, chain = as_chain(target, [TOKENS[node] for node in path])
    expected, found = (
        target.run([Row(one, (21, 22, 23), 3)])[0].whole(2).copy() for one in (chain, slot)
    )
    assert np.abs(found - expected).max() > 0.01


def test_a_chain_with_parents_is_a_chain(package: Package) -> None:
    """It never pays for trees, and its bits are a chain's."""
    target = Target(package, select_provider("cpu", "cpu"))
    (slot,) = target.make_slots(1, CONTEXT)
    prefill(target, slot)
    row = Row(slot, TOKENS, len(TOKENS), tuple(range(-1, len(TOKENS) - 1)))
    assert row.parents is None
    (result,) = target.run([row])
    assert not target.trees_loaded
    assert result.top_values.tobytes() == as_chain(target, TOKENS)[0].top_values.tobytes()
    with pytest.raises(AssertionError, match="loaded before they run"):
        target.run([Row(slot, TOKENS, len(TOKENS), PARENTS)])


def test_a_tree_follows_a_committed_token(target: Target) -> None:
    """The kernel takes no positions for the first tokens of a prompt."""
    (slot,) = target.make_slots(1, CONTEXT)
    with pytest.raises(AssertionError, match="follows a committed token"):
        Row(slot, TOKENS, 1, PARENTS)
    slot.commit(PROMPT[:1])
    with pytest.raises(AssertionError, match="one parent a token"):
        Row(slot, TOKENS, 1, PARENTS[:-1])


def test_trees_are_loaded_once_and_only_where_they_fit(
    package: Package, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = Target(package, select_provider("cpu", "cpu"))
    weights = package.manifest.files[package.manifest.target.weights].bytes
    monkeypatch.setattr(memory, "available_bytes", lambda: 3 * weights - 1)
    with pytest.raises(UserError, match="drafts that branch need") as refused:
        target.load_trees()
    assert (refused.value.code, refused.value.param) == ("out_of_memory", "speculation.branches")
    assert not target.trees_loaded
    monkeypatch.setattr(memory, "available_bytes", lambda: 3 * weights)
    target.load_trees()
    loaded = target._tree_sessions
    monkeypatch.setattr(memory, "available_bytes", lambda: 0)
    target.load_trees()
    assert target._tree_sessions is loaded


def test_a_package_may_have_no_trees(package: Package) -> None:
    spec = dataclasses.replace(package.manifest.target, tree_graphs={})
    manifest = dataclasses.replace(package.manifest, target=spec)
    without = dataclasses.replace(package, manifest=manifest)
    assert not Target(without, select_provider("cpu", "cpu")).has_trees
