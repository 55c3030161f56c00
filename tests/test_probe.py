"""The probe measures whether runs are bitwise row-independent; it is not allowed to believe."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from models.package import Package
from models.probe import BESIDE_TREES, CHUNKINGS, ProbeResult, probe, probe_trees
from models.providers import select_provider
from models.target import Row, RowResult, Target

Disturb = Callable[[Sequence[Row], list[RowResult]], None]


class DisturbedTarget(Target):
    """A target whose results are disturbed by the least amount there is."""

    disturb: Disturb = staticmethod(lambda rows, results: None)

    def run(self, rows: Sequence[Row]) -> list[RowResult]:
        results = super().run(rows)
        self.disturb(rows, results)
        return results


def nudge(values: NDArray[np.float32]) -> None:
    """The last value, one unit in the last place further."""
    last = (-1,) * values.ndim
    values[last] = np.nextafter(values[last], np.float32(np.inf))


@pytest.fixture
def target(package: Package) -> DisturbedTarget:
    return DisturbedTarget(package, select_provider("cpu", "cpu"))


def probed(target: Target, package: Package, slots: int = 4, context: int = 200) -> tuple[str, ...]:
    made = target.make_slots(slots, context)
    result = probe(target, made, package.manifest.target.vocab_size)
    assert result.exact is (result.differences == ())
    assert result.tokens > 0
    assert [slot.length for slot in made] == [0] * slots, "slots are left empty"
    return result.differences


@pytest.mark.parametrize("slots", [1, 2, 3, 4])
def test_the_cpu_kernels_are_exact(target: Target, package: Package, slots: int) -> None:
    assert probed(target, package, slots) == ()


@pytest.mark.parametrize("context", [16, 20, 32])
def test_a_short_context_can_be_probed(target: Target, package: Package, context: int) -> None:
    assert probed(target, package, context=context) == ()


@pytest.mark.parametrize("rows", [2, 3, 4])
def test_a_difference_between_packed_rows_is_named(
    target: DisturbedTarget, package: Package, rows: int
) -> None:
    def disturb(packed: Sequence[Row], results: list[RowResult]) -> None:
        if len(packed) == rows:
            nudge(results[-1].top_values)

    target.disturb = disturb
    assert probed(target, package) == (f"{rows} packed rows",)


def test_a_difference_in_log_sum_exp_alone_is_found(
    target: DisturbedTarget, package: Package
) -> None:
    def disturb(packed: Sequence[Row], results: list[RowResult]) -> None:
        if len(packed) == 2:
            nudge(results[0].logsumexp)

    target.disturb = disturb
    assert probed(target, package) == ("2 packed rows",)


def test_a_difference_of_one_chunk_width_is_named(
    target: DisturbedTarget, package: Package
) -> None:
    width = 64
    named = {f"chunks of {'+'.join(map(str, widths))}" for widths in CHUNKINGS if width in widths}

    def disturb(packed: Sequence[Row], results: list[RowResult]) -> None:
        if len(packed) == 1 and len(packed[0].tokens) == width:
            nudge(results[0].top_values)

    target.disturb = disturb
    assert named
    assert set(probed(target, package)) == named


def test_a_difference_in_the_kv_alone_is_found(target: DisturbedTarget, package: Package) -> None:
    """It would only show in later tokens."""

    def disturb(packed: Sequence[Row], results: list[RowResult]) -> None:
        row = packed[0]
        if len(packed) == 1 and row.past + len(row.tokens) == 160 and len(row.tokens) < 160:
            nudge(row.slot.buffers[0][0].numpy()[:, :, :160])

    target.disturb = disturb
    assert len(probed(target, package)) == len(CHUNKINGS)


@pytest.fixture
def trees(target: DisturbedTarget) -> DisturbedTarget:
    target.load_trees()
    return target


def found_beside_trees(target: Target, package: Package) -> ProbeResult:
    steps = probe_trees(target, package.manifest.target.vocab_size)
    return functools.reduce(ProbeResult.also, steps)


def test_chains_beside_trees_keep_their_bits(trees: Target, package: Package) -> None:
    result = found_beside_trees(trees, package)
    assert (result.exact, result.differences) == (True, ())
    assert result.tokens == sum(BESIDE_TREES)


@pytest.mark.parametrize("rows", [2, 3, 4])
@pytest.mark.parametrize("part", ["top_values", "logsumexp", "kv"])
def test_a_difference_beside_trees_is_named(
    trees: DisturbedTarget, package: Package, rows: int, part: str
) -> None:
    def disturb(packed: Sequence[Row], results: list[RowResult]) -> None:
        if len(packed) == rows and any(row.parents for row in packed):
            slot = packed[0].slot
            values = slot.buffers[1][1].numpy()[:, :, :1] if part == "kv" else None
            nudge(getattr(results[0], part) if values is None else values)

    trees.disturb = disturb
    result = found_beside_trees(trees, package)
    assert (result.exact, result.differences) == (False, (f"a chain beside {rows - 1} trees",))
