"""The target: packed rows of several requests verified in one run."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from models.package import Package
from models.providers import Provider
from models.session import Binding, Session
from models.slots import Slot, make_slot
from models.workspace import Window, Workspace

LEAST_WIDTH = 2
"""Tokens a run and a row must have at least: the CPU kernels for one token are not bitwise equal
to those for two and more, and with one width rule every provider runs the same code."""

NARROW = 16
"""Rows wider than this are padded to an even width. The CPU attention kernel works through a row
in blocks of queries (128 at head_dim 64, fewer where the cache is small), and a last block of one
query takes the kernel for one token."""

_KEPT_BINDINGS = 64


@dataclass(frozen=True, slots=True)
class Row:
    """One request's tokens in a run, written behind the committed tokens of `slot`.

    `logits` of the last tokens' outputs are wanted (0 for an inner prefill chunk). `past` is where
    the row begins: taken when the row is made, since a cancelled request's slot may have another
    owner, and another length, by the time its row runs.
    """

    slot: Slot
    tokens: tuple[int, ...]
    logits: int
    past: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "past", self.slot.length)


@dataclass(frozen=True, slots=True)
class WantedRow:
    """The logits behind one token: the K largest `values` in falling order, their `ids`, and the
    log-sum-exp of all V, so that a log-probability is `value - logsumexp`."""

    values: NDArray[np.float32]
    ids: NDArray[np.int64]
    logsumexp: float
    result: RowResult
    index: int

    @property
    def vocab_size(self) -> int:
        """Logits in a whole row."""
        assert self.result.window is not None, "a row of a run"
        return self.result.window.vocab_size

    def whole(self) -> NDArray[np.float32]:
        """All logits [V]: a view, to be read before the target runs again."""
        return self.result.whole(self.index)


@dataclass(frozen=True, slots=True)
class RowResult:
    """Per wanted token: the K largest logits [m, K] in falling order, their ids [m, K], and the
    log-sum-exp [m] of the whole row. `window` shows the whole rows until the next run."""

    top_values: NDArray[np.float32]
    top_ids: NDArray[np.int64]
    logsumexp: NDArray[np.float32]
    window: Window | None = None

    def row(self, index: int) -> WantedRow:
        return WantedRow(
            self.top_values[index], self.top_ids[index], float(self.logsumexp[index]), self, index
        )

    def whole(self, index: int) -> NDArray[np.float32]:
        """All logits [V] at a wanted position: a view, to be read before the target runs again."""
        assert self.window is not None, "results of a run show whole rows"
        assert 0 <= index < len(self.logsumexp), "whole rows of this row only"
        return self.window.whole(index)

    @property
    def greedy(self) -> list[int]:
        """The most likely token at each wanted position."""
        ids: list[int] = self.top_ids[:, 0].tolist()
        return ids


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where the rows of a run lie: indices into the packed tokens and the gathered rows."""

    ids: NDArray[np.int64]
    indices: list[NDArray[np.int64]]
    positions: list[NDArray[np.int64]]
    unpack: NDArray[np.int64]
    logits_index: NDArray[np.int64]


class Target:
    """The target model of a package with its graphs loaded. Run from one thread at a time."""

    def __init__(self, package: Package, provider: Provider, threads: int | None = None) -> None:
        self._spec = package.manifest.target
        self.provider = provider
        self._sessions = {
            rows: Session(package.file(self._spec.graphs[str(rows)]), provider, threads)
            for rows in package.row_counts
        }
        self._bindings: OrderedDict[tuple[object, ...], Binding] = OrderedDict()
        self._workspace = Workspace(self._spec.vocab_size, provider)
        self._spare = make_slot(-1, self._spec, LEAST_WIDTH, provider)

    @property
    def vocab_size(self) -> int:
        return self._spec.vocab_size

    @property
    def most_rows(self) -> int:
        return max(self._sessions)

    def make_slots(self, count: int, context: int) -> list[Slot]:
        return [make_slot(index, self._spec, context, self.provider) for index in range(count)]

    def run(self, rows: Sequence[Row]) -> list[RowResult]:
        """Run the target on `rows` (at most `most_rows`, of different slots).

        Nothing is committed: the caller commits what it accepts. The whole rows of the results
        are overwritten by the next run.
        """
        assert 0 < len(rows) <= self.most_rows, "as many rows as the largest graph takes"
        count = min(size for size in self._sessions if size >= len(rows))
        order = sorted(range(len(rows)), key=lambda index: rows[index].slot.index)
        packed = [rows[index] for index in order]
        results = self._run_packed(packed, count)
        return [results[order.index(index)] for index in range(len(rows))]

    def _run_packed(self, rows: list[Row], count: int) -> list[RowResult]:
        slots = [row.slot for row in rows] + [self._spare] * (count - len(rows))
        binding = self._binding(count, slots)
        layout = _lay_out(rows, count)
        self._feed(binding, rows, layout, count)
        outputs = self._collect(binding, len(layout.logits_index))
        self._workspace.bind(binding, len(layout.logits_index))
        binding.run()
        return _split(rows, outputs, self._workspace)

    def _binding(self, count: int, slots: list[Slot]) -> Binding:
        key = (count, *slots)
        binding = self._bindings.get(key)
        if binding is not None:
            self._bindings.move_to_end(key)
            return binding
        binding = self._sessions[count].binding()
        for row, slot in enumerate(slots):
            for layer, (past_key, past_value) in enumerate(slot.buffers):
                for kind, value in (("key", past_key), ("value", past_value)):
                    name = f"{layer}.{row}.{kind}"
                    binding.bind_in_place(f"past.{name}", f"present.{name}", value)
        self._bindings[key] = binding
        if len(self._bindings) > _KEPT_BINDINGS:
            self._bindings.popitem(last=False)
        return binding

    def _feed(self, binding: Binding, rows: list[Row], layout: _Layout, count: int) -> None:
        binding.feed("input_ids", layout.ids[None])
        binding.feed("logits_index", layout.logits_index)
        for row in range(count):
            width = layout.positions[row].size
            past = rows[row].past if row < len(rows) else 0
            total = past + width
            binding.feed(f"seqlens_k.{row}", np.array([total - 1], dtype=np.int32))
            binding.feed(f"total_length.{row}", np.array(total, dtype=np.int32))
            name = "position_ids" if count == 1 else f"position_ids.{row}"
            binding.feed(name, layout.positions[row][None])
            if count > 1:
                binding.feed(f"row_index.{row}", layout.indices[row])
        if count > 1:
            binding.feed("unpack_index", layout.unpack)

    def _collect(
        self, binding: Binding, wanted: int
    ) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.float32]]:
        """The small outputs, which every binding has for itself."""
        top = (wanted, self._spec.top_k)
        return (
            binding.collect("top_values", top, np.float32),
            binding.collect("top_ids", top, np.int64),
            binding.collect("logsumexp", (wanted,), np.float32),
        )


def _lay_out(rows: list[Row], count: int) -> _Layout:
    """Pack `rows`, padding where a lone token would meet another kernel.

    The pad repeats the last token one position later: causal, so the real ones do not see it, and
    never committed, so nothing sees its K/V.
    """
    ids: list[int] = []
    indices, positions, unpack, wanted = [], [], [], []
    gathered = 0
    for row in rows:
        start, width = len(ids), len(row.tokens)
        ids.extend(row.tokens)
        span = np.arange(start, start + width)
        wanted.append(span[width - row.logits :])
        unpack.append(gathered + np.arange(width))
        padded = _padded(width)
        indices.append(span if padded == width else np.append(span, span[-1]))
        positions.append(row.past + np.arange(padded))
        gathered += positions[-1].size
    for _ in range(count - len(rows)):
        indices.append(np.zeros(LEAST_WIDTH, dtype=np.int64))
        positions.append(np.arange(LEAST_WIDTH))
    if count == 1 and positions[0].size > len(ids):
        ids.append(ids[-1])
    return _Layout(
        ids=np.array(ids, dtype=np.int64),
        indices=indices,
        positions=positions,
        unpack=np.concatenate(unpack),
        logits_index=_pad_wanted(np.concatenate(wanted)),
    )


def _padded(width: int) -> int:
    return width + 1 if width < LEAST_WIDTH or (width > NARROW and width % 2) else width


def _pad_wanted(wanted: NDArray[np.int64]) -> NDArray[np.int64]:
    """No LM head of one row either: the same kernel change."""
    return wanted.repeat(LEAST_WIDTH) if wanted.size == 1 else wanted


def _split(
    rows: list[Row],
    outputs: tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.float32]],
    workspace: Workspace,
) -> list[RowResult]:
    results, start = [], 0
    for row in rows:
        part = slice(start, start + row.logits)
        values, ids, logsumexp = (output[part].copy() for output in outputs)
        results.append(RowResult(values, ids, logsumexp, workspace.window(start)))  # type: ignore[arg-type]
        start += row.logits
    return results
