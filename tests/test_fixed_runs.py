"""Captured runs, with the device played by the processor: results, replays, addresses, threads."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from models import buffers, device_binding, transfers
from models.capture import GraphStatus, total
from models.fixed_runs import WIDTHS, fast_tokens
from models.package import Package, load_package
from models.providers import DeviceOptions, select_provider
from models.rows import Row, RowResult
from models.slots import Slot
from models.target import Target
from tests.device_support import addresses, for_device, played
from tests.engine_support import make_prompt
from tests.features_support import featured

CONTEXT = 64
PROMPT = make_prompt(40)


@pytest.fixture(scope="module")
def package(package: Package, tmp_path_factory: pytest.TempPathFactory) -> Package:
    directory = tmp_path_factory.mktemp("device")
    return for_device(featured(package, directory / "featured"), directory / "package")


@pytest.fixture(scope="module")
def plain(package: Package, tmp_path_factory: pytest.TempPathFactory) -> Target:
    """The same graphs, whose features lie where runs are told to write them, on the host's way."""
    return Target(package, played(DeviceOptions(graphs=False)))


@pytest.fixture
def target(package: Package) -> Target:
    return Target(package, played())


def status(target: Target) -> GraphStatus:
    return total(target.graph_counts)


def prefill(target: Target, slot: Slot, tokens: Sequence[int]) -> None:
    target.run([Row(slot, tuple(tokens), logits=0)])
    slot.commit(tokens)


def near(found: RowResult, expected: RowResult) -> bool:
    return (
        np.allclose(found.top_values, expected.top_values, atol=1e-4)
        and found.greedy == expected.greedy
        and np.allclose(found.logsumexp, expected.logsumexp, atol=1e-4)
    )


def whole(target: Target, tokens: Sequence[int]) -> RowResult:
    (slot,) = target.make_slots(1, CONTEXT)
    (result,) = target.run([Row(slot, tuple(tokens), logits=len(tokens))])
    return result


def part(result: RowResult, start: int, end: int) -> RowResult:
    return RowResult(
        result.top_values[start:end], result.top_ids[start:end], result.logsumexp[start:end]
    )


def test_a_narrow_run_is_captured_once_and_replayed_with_other_tokens(
    target: Target, plain: Target
) -> None:
    expected = whole(plain, PROMPT)
    slot = target.make_slots(1, CONTEXT)[0]
    prefill(target, slot, PROMPT[:20])
    assert status(target) == GraphStatus(0, 0, {"wide": 1})
    for begin in range(20, 35, 3):
        (result,) = target.run([Row(slot, PROMPT[begin : begin + 3], logits=3)])
        slot.commit(PROMPT[begin : begin + 3])
        assert near(result, part(expected, begin, begin + 3))
    assert status(target) == GraphStatus(1, 4, {"wide": 1})


def test_rejected_tokens_and_padding_leave_nothing_behind(target: Target, plain: Target) -> None:
    """7 tokens are padded to 8; the next run begins where nothing of them was kept."""
    expected = whole(plain, PROMPT)
    slot = target.make_slots(1, CONTEXT)[0]
    prefill(target, slot, PROMPT[:10])
    target.run([Row(slot, (*PROMPT[10:12], 5, 5, 5, 5, 5), logits=7)])
    slot.commit(PROMPT[10:12])
    (result,) = target.run([Row(slot, PROMPT[12:19], logits=2)])
    assert near(result, part(expected, 17, 19))


@pytest.mark.parametrize("count", [2, 3, 4])
def test_packed_rows_of_different_width_are_one_captured_run(
    target: Target, plain: Target, count: int
) -> None:
    slots = target.make_slots(4, CONTEXT)
    prompts = [make_prompt(30, seed) for seed in range(count)]
    for slot, prompt in zip(slots, prompts, strict=False):
        prefill(target, slot, prompt[: 17 + 2 * slot.index])
    before = status(target)
    for turn in range(3):
        rows = [
            Row(slot, prompt[slot.length : slot.length + 1 + (slot.index + turn) % 3], logits=1)
            for slot, prompt in zip(slots, prompts, strict=False)
        ]
        results = target.run(list(reversed(rows)))
        for row, result, prompt in zip(reversed(rows), results, reversed(prompts), strict=True):
            end = row.past + len(row.tokens)
            assert near(result, part(whole(plain, prompt), end - 1, end))
            row.slot.commit(row.tokens)
    after = status(target)
    assert after.eager == before.eager
    shapes = 2 if count == 2 else 1
    assert (after.captured, after.replayed) == (shapes, 3 - shapes)


def test_features_are_written_where_the_slot_keeps_them(target: Target, plain: Target) -> None:
    expected = plain.make_slots(1, CONTEXT)[0]
    plain.run([Row(expected, PROMPT, logits=0)])
    slots = target.make_slots(2, CONTEXT)
    for slot in slots:
        prefill(target, slot, PROMPT[:18])
    while slots[0].length < 38:
        rows = [Row(slot, PROMPT[slot.length : slot.length + 5], logits=1) for slot in slots]
        target.run(rows)
        for slot in slots:
            slot.commit(PROMPT[slot.length : slot.length + 5])
    assert status(target).replayed == 3
    for slot in slots:
        for name, value in slot.features.items():
            found, wanted = value.numpy()[:38], expected.features[name].numpy()[:38]
            assert np.allclose(found, wanted, atol=1e-3), name
            assert np.abs(wanted).max() > 0.1


def two_rows(target: Target) -> list[Row]:
    """Four tokens each, behind 20 that are in the slots."""
    slots = target.make_slots(2, CONTEXT)
    for slot in slots:
        prefill(target, slot, PROMPT[:20])
    return [Row(slot, PROMPT[20:24], logits=4) for slot in slots]


def test_addresses_stay_and_nothing_is_allocated_between_replays(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = two_rows(target)
    slots = [row.slot for row in rows]
    target.run(rows)
    assert target._fixed is not None
    (fixed,) = target._fixed._runs.values()
    before = addresses(fixed.binding)
    assert len(before) == len(set(before)) > 8

    def refuse(*_: object) -> None:
        raise AssertionError("a replay allocates nothing on the device")

    monkeypatch.setattr(device_binding, "place", refuse)
    monkeypatch.setattr(buffers, "place", refuse)
    monkeypatch.setattr(transfers, "place", refuse)
    for width in (4, 1, 3):
        if width == 4:
            target.run([Row(slot, PROMPT[24 : 24 + width], logits=1) for slot in slots])
            assert addresses(fixed.binding) == before
        else:
            with pytest.raises(AssertionError, match="allocates"):
                target.run([Row(slot, PROMPT[:width], logits=1) for slot in slots])


def test_a_replay_has_one_copy_to_the_device_and_one_back(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = two_rows(target)
    (first, _) = target.run(rows)
    copies: list[str] = []
    for way in ("send", "fetch"):
        real = getattr(transfers.Piece, way)

        def counted(piece: transfers.Piece, way: str = way, real: Any = real) -> None:
            copies.append(way)
            real(piece)

        monkeypatch.setattr(transfers.Piece, way, counted)
    assert target._fixed is not None
    (fixed,) = target._fixed._runs.values()
    binding = fixed.binding
    assert isinstance(binding, device_binding.DeviceBinding)
    values = (*binding._lent.values(), *binding._fetched.values())
    assert [value for _, value in values if value is not None] == [], "nothing moves alone"
    (again, _) = target.run(rows)
    assert copies == ["send", "fetch"]
    assert again.top_ids.tolist() == first.top_ids.tolist()


def test_another_thread_may_not_replay(target: Target) -> None:
    slot = target.make_slots(1, CONTEXT)[0]
    target.run([Row(slot, PROMPT[:4], logits=4)])
    problems: list[BaseException] = []

    def replay() -> None:
        try:
            target.run([Row(slot, PROMPT[:4], logits=4)])
        except AssertionError as error:
            problems.append(error)

    thread = threading.Thread(target=replay)
    thread.start()
    thread.join()
    assert len(problems) == 1
    assert "thread" in str(problems[0])


def test_near_the_end_of_the_context_a_run_is_not_captured(target: Target, plain: Target) -> None:
    tokens = make_prompt(CONTEXT, 3)
    slot = target.make_slots(1, CONTEXT)[0]
    prefill(target, slot, tokens[:55])
    (result,) = target.run([Row(slot, tokens[55:64], logits=9)])
    assert near(result, part(whole(plain, tokens), 55, 64))
    assert status(target) == GraphStatus(0, 0, {"wide": 2}), "12 tokens have no room behind 55"


def test_a_tree_is_not_captured(target: Target) -> None:
    target.load_trees()
    slot = target.make_slots(1, CONTEXT)[0]
    prefill(target, slot, PROMPT[:20])
    target.run([Row(slot, PROMPT[20:24], logits=4, parents=(-1, 0, 0, 1))])
    assert status(target).eager == {"wide": 1, "tree": 1}


def test_more_wanted_rows_than_ever_before_leave_captured_addresses(target: Target) -> None:
    slot = target.make_slots(1, CONTEXT)[0]
    (first,) = target.run([Row(slot, PROMPT[:4], logits=4)])
    expected = first.whole(3).copy()
    others = target.make_slots(4, CONTEXT)
    target.run([Row(other, PROMPT, logits=40) for other in others])
    (again,) = target.run([Row(slot, PROMPT[:4], logits=4)])
    assert np.array_equal(again.whole(3), expected)


def test_warming_up_captures_every_shape_once(package: Package) -> None:
    target = Target(package, played())
    slots = target.make_slots(2, CONTEXT)
    count = target.warm_up(slots)
    assert count == 3 * len(WIDTHS), "two rows alone, and both together"
    assert status(target) == GraphStatus(count, 0, {})
    assert [slot.length for slot in slots] == [0, 0]
    prefill(target, slots[0], PROMPT[:16])
    target.run([Row(slots[0], PROMPT[16:20], logits=1)])
    assert status(target).captured == count, "nothing new came"


def test_strict_mode_has_one_shape_whatever_is_asked(package: Package) -> None:
    target = Target(package, played(DeviceOptions(strict_width=6)))
    assert target.strict_width == 6
    slots = target.make_slots(2, CONTEXT)
    for slot in slots:
        prefill(target, slot, PROMPT[:20])
    captured = set()
    for rows, width in ((1, 1), (1, 6), (2, 3)):
        target.run([Row(slot, PROMPT[20 : 20 + width], logits=width) for slot in slots[:rows]])
        assert target._fixed is not None
        captured |= {(len(run.slots), run.width) for run in target._fixed._runs.values()}
    assert captured == {(4, 6)}


def test_only_four_bits_on_cuda_have_an_end_of_the_fast_kernels(package: Package) -> None:

    spec = package.manifest.target
    assert fast_tokens(spec) is None
    four = dataclasses.replace(spec, device="cuda", weight_type="int4")
    assert fast_tokens(four) == 16
    assert fast_tokens(dataclasses.replace(four, weight_type="int8")) is None


def test_the_host_captures_nothing(package: Package, tiny_package: Path) -> None:
    target = Target(load_package(tiny_package), select_provider("cpu", "cpu"))
    assert target.warm_up(target.make_slots(1, CONTEXT)) == 0
    assert target.strict_width is None
    assert status(target) == GraphStatus(0, 0, {})
