"""The probe: is this target, on this machine, bitwise row-independent?

Losslessness rests on kernels that give a token the same bits whatever else is in the run. That
depends on the processor and the provider, so it is measured when a package is loaded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.slots import Slot
from models.target import Row, RowResult, Target

PROBE_TOKENS = 160

CHUNKINGS = ((1, 2, 3, 1, 7, 16, 1, 2, 5), (64,), (129, 31))
"""Chunk widths, taken in turn: what rounds and prefill chunks do, and where kernels change."""

BESIDE_TREES = (1, 2, 33, 1, 8, 3)
"""Chunk widths of the chain that rides along with trees."""


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """`exact` when all comparisons were bit-identical; else `differences` names those not."""

    exact: bool
    tokens: int
    differences: tuple[str, ...]

    def also(self, other: ProbeResult) -> ProbeResult:
        """What both found."""
        differences = (*self.differences, *other.differences)
        return ProbeResult(not differences, self.tokens + other.tokens, differences)


def probe(target: Target, slots: Sequence[Slot], vocab_size: int) -> ProbeResult:
    """Run the same tokens whole, in chunks, and packed with others; compare bits.

    Uses `slots` (as many as the largest graph has rows, and at least one) and leaves them empty.
    Compares top values, ids, log-sum-exp and, on the host, K/V.
    """
    context = min(slot.context for slot in slots)
    length = min(PROBE_TOKENS, context - 8)
    ids = np.random.default_rng(0).integers(0, vocab_size, length).tolist()
    whole = _run_chunks(target, slots[0], ids, [length])
    kv = _host_kv(slots[0], length)
    differences = []
    for widths in CHUNKINGS:
        again = _run_chunks(target, slots[0], ids, widths)
        if not (_same(whole, again) and _same_arrays(kv, _host_kv(slots[0], length))):
            differences.append(f"chunks of {'+'.join(map(str, widths))}")
    for rows in range(2, min(target.most_rows, len(slots)) + 1):
        if not _same_packed(target, slots[:rows], ids, whole):
            differences.append(f"{rows} packed rows")
    for slot in slots:
        slot.truncate(0)
    return ProbeResult(exact=not differences, tokens=length, differences=tuple(differences))


def probe_trees(target: Target, vocab_size: int) -> Iterator[ProbeResult]:
    """Run chains beside trees and alone, once the target has loaded its trees; compare bits.

    Trees themselves are exact up to rounding only; requests that ride along must not notice.
    Makes the slots it needs. A generator, so that other runs may come between its own: each step
    is one run or a few, and yields what it found.
    """
    length = sum(BESIDE_TREES)
    ids = np.random.default_rng(1).integers(0, vocab_size, length).tolist()
    chain, beside, *others = target.make_slots(max(target.most_rows, 2), length)
    whole = _run_chunks(target, chain, ids, [length])
    kv = _host_kv(chain, length)
    yield ProbeResult(exact=True, tokens=length, differences=())
    for rows in range(2, target.most_rows + 1):
        parts = []
        for part in _run_beside(target, beside, [*others[: rows - 2], chain], ids):
            parts.append(part)
            yield ProbeResult(exact=True, tokens=0, differences=())
        if not (_same(whole, _join(parts)) and _same_arrays(kv, _host_kv(beside, length))):
            yield ProbeResult(False, 0, (f"a chain beside {rows - 1} trees",))


def _run_beside(
    target: Target, slot: Slot, trees: Sequence[Slot], ids: list[int]
) -> Iterator[RowResult]:
    """The results of `ids` as a chain in chunks while every one of `trees` verifies a tree."""
    for tree in trees:
        _run_chunks(target, tree, ids[:2], [2])
    slot.truncate(0)
    for width in BESIDE_TREES:
        chunk = tuple(ids[slot.length : slot.length + width])
        rows = [Row(tree, tuple(ids[2:7]), 1, parents=(-1, 0, 0, 1, 2)) for tree in trees]
        yield target.run([Row(slot, chunk, logits=width), *rows])[0]
        slot.commit(chunk)


def _run_chunks(target: Target, slot: Slot, ids: list[int], widths: Sequence[int]) -> RowResult:
    slot.truncate(0)
    parts, turn = [], 0
    while slot.length < len(ids):
        chunk = tuple(ids[slot.length : slot.length + widths[turn % len(widths)]])
        parts += target.run([Row(slot, chunk, logits=len(chunk))])
        slot.commit(chunk)
        turn += 1
    return _join(parts)


def _same_packed(target: Target, slots: Sequence[Slot], ids: list[int], whole: RowResult) -> bool:
    """The rows advance together in steps of 1, 2, 3, ... tokens, each at its own position."""
    starts = [len(ids) // 4 * index // len(slots) for index in range(len(slots))]
    for slot, start in zip(slots, starts, strict=True):
        slot.truncate(0)
        if start:
            _run_chunks(target, slot, ids[: max(start, 2)], [start])
    parts: list[list[RowResult]] = [[] for _ in slots]
    begins = [slot.length for slot in slots]
    for turn in range(6):
        rows = []
        for index, slot in enumerate(slots):
            chunk = tuple(ids[slot.length : slot.length + 1 + (turn + index) % 5])
            rows.append(Row(slot, chunk, logits=len(chunk)))
        if not all(row.tokens for row in rows):
            break  # a short context: the tokens of a row have run out
        for index, result in enumerate(target.run(rows)):
            parts[index].append(result)
            slots[index].commit(rows[index].tokens)
    return all(
        _same(_window(whole, begins[index], slots[index].length), _join(parts[index]))
        for index in range(len(slots))
    )


def _join(parts: Sequence[RowResult]) -> RowResult:
    return RowResult(
        top_values=np.concatenate([part.top_values for part in parts]),
        top_ids=np.concatenate([part.top_ids for part in parts]),
        logsumexp=np.concatenate([part.logsumexp for part in parts]),
    )


def _window(result: RowResult, start: int, end: int) -> RowResult:
    return RowResult(
        top_values=result.top_values[start:end],
        top_ids=result.top_ids[start:end],
        logsumexp=result.logsumexp[start:end],
    )


def _same(first: RowResult, second: RowResult) -> bool:
    return _same_arrays(
        [first.top_values, first.top_ids, first.logsumexp],
        [second.top_values, second.top_ids, second.logsumexp],
    )


def _same_arrays(first: Sequence[NDArray[Any]], second: Sequence[NDArray[Any]]) -> bool:
    return all(a.tobytes() == b.tobytes() for a, b in zip(first, second, strict=True))


def _host_kv(slot: Slot, length: int) -> list[NDArray[Any]]:
    """Copies of the K/V of the first `length` tokens; empty where it lives on a device."""
    return [
        buffer.numpy()[:, :, :length].copy()
        for pair in slot.buffers
        for buffer in pair
        if buffer.device_name() == "cpu"
    ]
