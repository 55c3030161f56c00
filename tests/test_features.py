"""Features: kept in the slot beside the K/V, row by row, and valid for the same tokens."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from models.compaction import DeviceCompaction
from models.memory import PAD_TOKENS, feature_bytes
from models.package import Package
from models.probe import probe
from models.providers import select_provider
from models.slots import Lease, Slot, copy_prefix
from models.target import Row, Target
from tests.engine_support import kv_bytes, make_prompt
from tests.features_support import COMPACT, featured

CONTEXT = 64
PROMPT = make_prompt(40)
CPU = select_provider("cpu", "cpu")


@pytest.fixture(scope="module")
def with_features(package: Package, tmp_path_factory: pytest.TempPathFactory) -> Package:
    return featured(package, tmp_path_factory.mktemp("featured"))


@pytest.fixture(scope="module")
def target(with_features: Package) -> Target:
    return Target(with_features, CPU)


@pytest.fixture
def slots(target: Target) -> list[Slot]:
    return target.make_slots(4, CONTEXT)


def features(slot: Slot, length: int | None = None) -> dict[str, NDArray[np.float32]]:
    count = slot.length if length is None else length
    return {name: rows.numpy()[:count].copy() for name, rows in slot.features.items()}


def whole(target: Target, tokens: Sequence[int]) -> dict[str, NDArray[np.float32]]:
    """Of tokens that are prefilled in one run."""
    (slot,) = target.make_slots(1, CONTEXT)
    target.run([Row(slot, tuple(tokens), logits=0)])
    slot.commit(tokens)
    return features(slot)


def same(found: dict[str, NDArray[np.float32]], wanted: dict[str, NDArray[np.float32]]) -> bool:
    assert found.keys() == wanted.keys() == {"hidden", "taps"}
    return all(found[name].tobytes() == wanted[name].tobytes() for name in wanted)


def test_a_slot_keeps_a_row_of_every_feature_for_every_token(
    target: Target, slots: list[Slot], with_features: Package
) -> None:
    spec = with_features.manifest.target
    assert spec.features == {"hidden": spec.hidden_size, "taps": 3 * spec.hidden_size}
    taken = 0
    for name, rows in slots[0].features.items():
        assert rows.shape() == [CONTEXT + PAD_TOKENS, spec.features[name]]
        taken += rows.numpy().nbytes
    assert feature_bytes(spec, CONTEXT) == taken
    hidden = whole(target, PROMPT)["hidden"]
    assert len(np.unique(hidden, axis=0)) > len(PROMPT) // 2
    assert np.abs(hidden).max(axis=1).min() > 0.1


@pytest.mark.parametrize("widths", [(1,), (2, 1), (7, 1, 16, 3), (39, 1)])
def test_chunks_leave_the_features_of_the_whole(
    target: Target, slots: list[Slot], widths: tuple[int, ...]
) -> None:
    slot, turn = slots[0], itertools.cycle(widths)
    while slot.length < len(PROMPT):
        chunk = PROMPT[slot.length : slot.length + next(turn)]
        target.run([Row(slot, chunk, logits=len(chunk))])
        slot.commit(chunk)
    assert same(features(slot), whole(target, PROMPT))


@pytest.mark.parametrize("rows", [2, 3, 4])
def test_packed_rows_keep_their_own(target: Target, slots: list[Slot], rows: int) -> None:
    prompts = [make_prompt(30, seed) for seed in range(rows)]
    for index, (slot, prompt) in enumerate(zip(slots, prompts, strict=False)):
        target.run([Row(slot, prompt[: 5 + index], logits=0)])
        slot.commit(prompt[: 5 + index])
    for widths in ((1, 1, 1, 1), (1, 5, 2, 1), (4, 1, 1, 3), (12, 1, 2, 1)):
        packed = [
            Row(slot, prompt[slot.length : slot.length + width], logits=width)
            for slot, prompt, width in zip(slots, prompts, widths, strict=False)
        ]
        target.run(packed)
        for row in packed:
            row.slot.commit(row.tokens)
    for slot, prompt in zip(slots, prompts, strict=False):
        assert same(features(slot), whole(target, prompt[: slot.length]))


def test_the_last_token_of_a_full_slot_has_its_pad(target: Target, slots: list[Slot]) -> None:
    slot, tokens = slots[0], make_prompt(CONTEXT)
    target.run([Row(slot, tokens[:-1], logits=0)])
    slot.commit(tokens[:-1])
    target.run([Row(slot, tokens[-1:], logits=1)])
    slot.commit(tokens[-1:])
    assert same(features(slot), whole(target, tokens))


def test_an_accepted_path_takes_its_features_along(target: Target) -> None:
    target.load_trees()
    for compact in (target.compact, None):
        (slot,) = target.make_slots(1, CONTEXT)
        target.run([Row(slot, PROMPT[:10], logits=0)])
        slot.commit(PROMPT[:10])
        tree = Row(slot, (PROMPT[10], 3, PROMPT[11], 5, PROMPT[12]), 5, (-1, 0, 0, 1, 2))
        target.run([tree])
        before = features(slot, 15)
        move = compact or device_compaction(target)
        move(slot, 11, (1, 3))
        slot.commit(PROMPT[10:13], exact=False)
        wanted = whole(target, PROMPT[:13])
        for name, found in features(slot).items():
            kept = [*range(11), 12, 14]
            assert found.tobytes() == before[name][kept].tobytes()
            assert np.allclose(found, wanted[name], atol=1e-3)
            assert not np.allclose(before[name][:13], wanted[name], atol=1e-3)


def device_compaction(target: Target) -> DeviceCompaction:
    return DeviceCompaction(target._package.file(COMPACT), CPU)


def test_a_copied_prefix_brings_its_features(target: Target, slots: list[Slot]) -> None:
    source, copied, leased = slots[:3]
    target.run([Row(source, PROMPT, logits=0)])
    source.commit(PROMPT)
    copy_prefix(source, copied, 17)
    Lease(leased, shared=21, source=source).fill()
    for slot, count in ((copied, 17), (leased, 21)):
        assert same(features(slot, count), features(source, count))
        for rows in slot.features.values():
            assert not rows.numpy()[count:].any()


def test_rejected_tokens_leave_no_features(target: Target, slots: list[Slot]) -> None:
    slot = slots[0]
    target.run([Row(slot, (*PROMPT[:20], 3, 1, 4), logits=0)])
    slot.commit(PROMPT[:20])
    target.run([Row(slot, PROMPT[20:], logits=1)])
    slot.commit(PROMPT[20:])
    assert same(features(slot), whole(target, PROMPT))


def test_features_change_nothing_else(package: Package, target: Target) -> None:
    plain = Target(package, CPU)
    results = []
    for each in (plain, target):
        (slot,) = each.make_slots(1, CONTEXT)
        (result,) = each.run([Row(slot, PROMPT, logits=len(PROMPT))])
        results.append((result.top_values.tobytes(), kv_bytes(slot, len(PROMPT))))
    assert results[0] == results[1]
    assert plain.make_slots(1, CONTEXT)[0].features == {}
    assert probe(target, target.make_slots(4, CONTEXT), 200).exact
