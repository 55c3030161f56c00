"""Lone runs of a few tokens: to the bit what packing gives, with nothing bound twice."""

from __future__ import annotations

import pytest

from models.package import Package
from models.providers import select_provider
from models.rows import NARROW
from models.slots import Slot
from models.target import Row, RowResult, Target
from tests.engine_support import kv_bytes, make_prompt
from tests.features_support import featured

CONTEXT = 64
PROMPT = make_prompt(40)


@pytest.fixture(scope="module")
def target(package: Package, tmp_path_factory: pytest.TempPathFactory) -> Target:
    with_features = featured(package, tmp_path_factory.mktemp("featured"))
    return Target(with_features, select_provider("cpu", "cpu"))


def bits(result: RowResult) -> tuple[bytes, ...]:
    lists = (result.top_values, result.top_ids, result.logsumexp)
    rows = [result.whole(index).copy() for index in range(len(result.logsumexp))]
    return tuple(array.tobytes() for array in (*lists, *rows))


def slot_bits(slot: Slot, length: int) -> list[bytes]:
    kept = [rows.numpy()[:length].tobytes() for rows in slot.features.values()]
    assert len(kept) == 2
    return [*kv_bytes(slot, length), *kept]


def prefilled(target: Target, slot: Slot, count: int) -> None:
    slot.truncate(0)
    target.run([Row(slot, PROMPT[:count], logits=0)])
    slot.commit(PROMPT[:count])


def binding_changes(target: Target) -> list[int]:
    assert target._lone is not None
    return [lone.binding._changes for lone in target._lone._runs.values()]


@pytest.mark.parametrize("width", [1, 2, 3, 7, NARROW])
def test_a_lone_run_gives_the_bits_of_a_packed_one(target: Target, width: int) -> None:
    own, packed = target.make_slots(2, CONTEXT)
    for past in (20, 9, 23):
        for slot in (own, packed):
            prefilled(target, slot, past)
        tokens = PROMPT[past : past + width]
        row = Row(own, tokens, logits=width)
        assert target._lone is not None
        assert target._lone.takes(row)
        (result,) = target.run([row])
        found = bits(result)
        (expected,) = target._run_packed([Row(packed, tokens, logits=width)], 1)
        assert found == bits(expected)
        assert slot_bits(own, past + width) == slot_bits(packed, past + width)


def test_a_width_that_comes_again_is_not_bound_again(target: Target) -> None:
    (slot,) = target.make_slots(1, CONTEXT)
    prefilled(target, slot, 10)
    for width in (1, 4, 6):
        target.run([Row(slot, PROMPT[10 : 10 + width], logits=width)])
    before = binding_changes(target)
    for width in (6, 1, 4, 1, 6):
        past = slot.length
        target.run([Row(slot, PROMPT[past : past + width], logits=width)])
        slot.commit(PROMPT[past : past + 1])
    assert binding_changes(target)[-3:] == before[-3:]
    assert len(before) == len(binding_changes(target))


def test_results_outlive_the_next_run(target: Target) -> None:
    (slot,) = target.make_slots(1, CONTEXT)
    prefilled(target, slot, 10)
    (first,) = target.run([Row(slot, PROMPT[10:13], logits=3)])
    known = first.top_ids.tolist()
    target.run([Row(slot, (5, 6, 7), logits=3)])
    assert first.top_ids.tolist() == known


@pytest.mark.parametrize(
    ("width", "logits", "parents"),
    [(NARROW + 1, NARROW + 1, None), (4, 1, None), (4, 0, None), (3, 3, (-1, 0, 0))],
)
def test_what_is_no_round_of_a_chain_is_packed(
    target: Target, width: int, logits: int, parents: tuple[int, ...] | None
) -> None:
    (slot,) = target.make_slots(1, CONTEXT)
    prefilled(target, slot, 5)
    assert target._lone is not None
    assert not target._lone.takes(Row(slot, PROMPT[:width], logits, parents))


def test_bindings_are_bounded(package: Package, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("models.lone_runs._KEPT", 3)
    target = Target(package, select_provider("cpu", "cpu"))
    (slot,) = target.make_slots(1, CONTEXT)
    expected = [target.run([Row(slot, PROMPT[:width], width)])[0].greedy for width in range(1, 7)]
    assert len(binding_changes(target)) == 3
    again = [target.run([Row(slot, PROMPT[:width], width)])[0].greedy for width in range(1, 7)]
    assert again == expected


def test_without_a_graph_for_one_row_every_row_is_packed(
    target: Target, package: Package, monkeypatch: pytest.MonkeyPatch
) -> None:
    (slot,) = target.make_slots(1, CONTEXT)
    (expected,) = target.run([Row(slot, PROMPT[:3], logits=3)])
    counts = tuple(count for count in package.row_counts if count > 1)
    assert counts
    monkeypatch.setattr(type(package), "row_counts", counts)
    without = Target(package, select_provider("cpu", "cpu"))
    assert without._lone is None
    (other,) = without.make_slots(1, CONTEXT)
    (result,) = without.run([Row(other, PROMPT[:3], logits=3)])
    assert result.top_values.tobytes() == expected.top_values.tobytes()
