"""Runs of one chain of a few tokens on the host: what is bound for a shape stays bound for it.

A stream that is alone has a run a round, and with drafts every run may have another width. To bind
a session's small inputs and outputs anew for that takes longer than all else that a round does for
its run. So each slot has a binding for every width of its own, and a run writes into arrays.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.counting import numbers
from models.feeding import feed
from models.package import TargetSpec
from models.rows import NARROW, Row, RowResult, lay_out
from models.session import Binding, Session
from models.slots import Slot
from models.workspace import Workspace

_KEPT = 128
"""Bindings: the widths of eight slots."""

_Key = tuple[Slot, int]
_FloatRows = NDArray[np.floating[Any]]


class LoneRuns:
    """The lone runs of a target, by slot and tokens. `session` is that of the graph for one row."""

    def __init__(self, spec: TargetSpec, session: Session, workspace: Workspace) -> None:
        self._spec = spec
        self._session = session
        self._workspace = workspace
        self._runs: OrderedDict[_Key, _LoneRun] = OrderedDict()

    @staticmethod
    def takes(row: Row) -> bool:
        """Chains of which every token's logits are wanted, as a round's are."""
        return row.parents is None and row.logits == len(row.tokens) <= NARROW

    def run(self, row: Row) -> RowResult:
        """As `Target.run` of this row."""
        key = (row.slot, len(row.tokens))
        lone = self._runs.get(key)
        if lone is None:
            lone = self._runs[key] = self._made(row)
            if len(self._runs) > _KEPT:
                self._runs.popitem(last=False)
        else:
            self._runs.move_to_end(key)
        self._workspace.bind(lone.binding, len(lone.logsumexp))
        lone.run(row)
        return lone.result(row.logits, self._workspace)

    def _made(self, row: Row) -> _LoneRun:
        layout = lay_out([row], 1)
        binding = self._session.binding()
        binding.bind_slot(row.slot.buffers, 0)
        feed(binding, layout, 1)
        width, wanted = layout.ids.size, layout.logits_index.size
        arrays = binding.arrays
        return _LoneRun(
            binding=binding,
            ids=arrays["input_ids"][0],
            positions=arrays["position_ids"][0],
            last=arrays["seqlens_k.0"],
            total=arrays["total_length.0"],
            top_values=binding.collect("top_values", (wanted, self._spec.top_k), np.float32),
            top_ids=binding.collect("top_ids", (wanted, self._spec.top_k), np.int64),
            logsumexp=binding.collect("logsumexp", (wanted,), np.float32),
            features=tuple(
                (binding.collect(f"{name}.0", (width, rows.width), rows.kind), rows.value.numpy())
                for name, rows in row.slot.feature_rows.items()
            ),
        )


@dataclass(frozen=True, slots=True)
class _LoneRun:
    """A binding and its arrays, for runs of one width [T] behind whatever its slot holds.

    `features` are what the run writes [T, F], and where the slot keeps it [capacity, F]: copied,
    since to bind the place in there takes longer.
    """

    binding: Binding
    ids: NDArray[np.int64]
    positions: NDArray[np.int64]
    last: NDArray[np.int32]
    total: NDArray[np.int32]
    top_values: NDArray[np.float32]
    top_ids: NDArray[np.int64]
    logsumexp: NDArray[np.float32]
    features: tuple[tuple[_FloatRows, _FloatRows], ...]

    def run(self, row: Row) -> None:
        tokens, past, width = row.tokens, row.past, len(self.ids)
        end = past + width
        self.ids[:] = tokens if len(tokens) == width else (*tokens, tokens[-1])
        self.positions[:] = numbers(past, end, np.int64)
        self.last.fill(end - 1)
        self.total.fill(end)
        self.binding.run()
        for made, kept in self.features:
            kept[past:end] = made

    def result(self, wanted: int, workspace: Workspace) -> RowResult:
        return RowResult(
            self.top_values[:wanted].copy(),
            self.top_ids[:wanted].copy(),
            self.logsumexp[:wanted].copy(),
            workspace.window(0),
        )
