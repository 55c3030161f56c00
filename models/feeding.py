"""How packed rows are handed to a binding, and its outputs back to the rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from models.binding import Binding
from models.package import FEATURE_INDEX
from models.rows import Layout, Row, RowResult
from models.slots import Slot
from models.workspace import Workspace

_SEQLENS, _TOTAL = np.zeros(1, dtype=np.int32), np.zeros((), dtype=np.int32)


def feed(binding: Binding, layout: Layout, count: int) -> None:
    binding.feed("input_ids", layout.ids[None])
    binding.feed("logits_index", layout.logits_index)
    for row, (past, positions) in enumerate(zip(layout.pasts, layout.positions, strict=True)):
        total = past + positions.size
        binding.set(f"seqlens_k.{row}", total - 1, _SEQLENS)
        binding.set(f"total_length.{row}", total, _TOTAL)
        name = "position_ids" if count == 1 else f"position_ids.{row}"
        binding.feed(name, positions[None])
        if count > 1:
            binding.feed(f"row_index.{row}", layout.indices[row])
    if count > 1:
        binding.feed("unpack_index", layout.unpack)


def collect_features(binding: Binding, layout: Layout, slots: Sequence[Slot]) -> None:
    """The features of a row's tokens are written where its slot keeps them."""
    for index, slot in enumerate(slots):
        width = layout.positions[index].size
        for name, rows in slot.feature_rows.items():
            binding.collect_rows(f"{name}.{index}", rows, layout.pasts[index], width)


def feed_places(binding: Binding, layout: Layout) -> None:
    """Where in their slots the features of the rows' tokens belong."""
    for index, past in enumerate(layout.pasts):
        width = layout.positions[index].size
        binding.feed(f"{FEATURE_INDEX}.{index}", np.arange(past, past + width)[:, None])


def split(
    rows: Sequence[Row],
    outputs: tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.float32]],
    workspace: Workspace,
    width: int | None = None,
) -> list[RowResult]:
    """`outputs` hold what rows want one after another; with `width`, so many of every row."""
    if len(rows) == 1 and width is None:
        # One wanted token is run as two, and none may be: what only pads is not the row's.
        wanted = rows[0].logits
        values, ids, logsumexp = (output[:wanted].copy() for output in outputs)
        return [RowResult(values, ids, logsumexp, workspace.window(0))]  # type: ignore[arg-type]
    results, start = [], 0
    for index, row in enumerate(rows):
        if width is not None:
            start = index * width + len(row.tokens) - row.logits
        part = slice(start, start + row.logits)
        values, ids, logsumexp = (output[part].copy() for output in outputs)
        results.append(RowResult(values, ids, logsumexp, workspace.window(start)))  # type: ignore[arg-type]
        start += row.logits
    return results
