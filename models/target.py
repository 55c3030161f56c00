"""The target: packed rows of several requests verified in one run."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from models.capture import GraphCounts
from models.compaction import DeviceCompaction, compact_host
from models.fixed_runs import FixedRuns, bind_kept, fast_tokens, fixed_widths, keeps_features
from models.initializers import SharedWeights
from models.memory import require_tree_memory
from models.package import FEATURE_INDEX, Package, require_unchanged
from models.providers import Provider
from models.rows import LEAST_WIDTH, Layout, Row, RowResult, lay_out
from models.session import Binding, Session
from models.slots import Slot, make_slot
from models.tensorrt import EngineSessions
from models.trees import attention_bias
from models.workspace import Workspace

__all__ = ["LEAST_WIDTH", "Row", "RowResult", "Target"]

_KEPT_BINDINGS = 64
_SEQLENS, _TOTAL = np.zeros(1, dtype=np.int32), np.zeros((), dtype=np.int32)


class Target:
    """The target model of a package with its graphs loaded. Run from one thread at a time."""

    def __init__(self, package: Package, provider: Provider, threads: int | None = None) -> None:
        self._package = package
        self._spec = package.manifest.target
        self._threads = threads
        self.provider = provider
        shares = provider.use.share_weights and not provider.on_host
        self.weights = SharedWeights(provider) if shares else None
        self._engines: EngineSessions | None = None
        self._sessions: Mapping[int, Session]
        if provider.device == "tensorrt":
            self._sessions = self._engines = EngineSessions(package, provider, threads)
        else:
            self._sessions = self._load(self._spec.graphs, capture=True)
        self._tree_sessions: Mapping[int, Session] = {}
        self._loading_trees = threading.Lock()
        self._bindings: OrderedDict[tuple[object, ...], Binding] = OrderedDict()
        widest = max(fixed_widths(provider)) if provider.fixes else LEAST_WIDTH
        self._workspace = Workspace(self._spec.vocab_size, provider, self.most_rows * widest)
        self._spare = make_slot(-1, self._spec, widest, provider)
        self._compaction: DeviceCompaction | None = None
        self._fixed: FixedRuns | None = None
        if provider.fixes:
            self._fixed = FixedRuns(
                self._spec,
                provider,
                self._sessions,
                self._workspace,
                self._spare,
                None if self._engines is None else self._engines.fixed,
            )

    @property
    def vocab_size(self) -> int:
        return self._spec.vocab_size

    @property
    def most_rows(self) -> int:
        return max(self._sessions)

    @property
    def strict_width(self) -> int | None:
        """The width of every verification, where all of them go through the same kernels."""
        return self.provider.use.strict_width if self._fixed is not None else None

    @property
    def fast_tokens(self) -> int | None:
        """Tokens of a run beyond which it costs much more at once; None: there is no such end."""
        return None if self.provider.on_host else fast_tokens(self._spec)

    @property
    def graph_counts(self) -> list[GraphCounts]:
        """How runs ran, by session."""
        loaded = self._sessions.values() if self._engines is None else self._engines.loaded
        sessions = (*loaded, *self._tree_sessions.values())
        return [session.captures.counts for session in sessions]

    @property
    def has_trees(self) -> bool:
        """Whether the package can verify drafts that branch."""
        return bool(self._spec.tree_graphs)

    @property
    def trees_loaded(self) -> bool:
        return bool(self._tree_sessions)

    def load_trees(self) -> None:
        """Load what rows with parents need, once; in any thread, also while the target runs.

        Raises `UserError` (`out_of_memory`) where it does not fit, or `package_changed`.
        """
        assert self.has_trees, "the package has graphs for trees"
        with self._loading_trees:
            if self._tree_sessions:
                return
            require_unchanged(self._package)
            require_tree_memory(self._package)
            if self.provider.memory != "cpu":
                assert self._spec.compact_graph is not None, "packages for devices have one"
                graph = self._package.file(self._spec.compact_graph)
                self._compaction = DeviceCompaction(graph, self.provider, self._threads)
            self._tree_sessions = self._load(self._spec.tree_graphs)

    def make_slots(self, count: int, context: int) -> list[Slot]:
        return [make_slot(index, self._spec, context, self.provider) for index in range(count)]

    def warm_up(self, slots: Sequence[Slot]) -> int:
        """Run every shape in use once, so that none is captured while a request waits; returns how
        many. `slots` hold nothing. Where nothing is captured there is nothing to do."""
        if self._fixed is None:
            return 0
        count = 0
        for rows in self._fixed.shapes(slots, self.fast_tokens):
            self.run(rows)
            count += 1
        return count

    def run(self, rows: Sequence[Row]) -> list[RowResult]:
        """Run the target on `rows` (at most `most_rows`, of different slots).

        Nothing is committed: the caller commits what it accepts. The whole rows of the results
        are overwritten by the next run. Trees need `load_trees` before.
        """
        assert 0 < len(rows) <= self.most_rows, "as many rows as the largest graph takes"
        if len(rows) == 1 and self._fixed is None:
            return self._run_packed(rows, min(self._sessions))
        order = sorted(range(len(rows)), key=lambda index: rows[index].slot.index)
        packed = [rows[index] for index in order]
        trees = any(row.parents is not None for row in rows)
        width = None if self._fixed is None or trees else self._fixed.width(packed)
        if self._fixed is not None and width is not None:
            outputs = self._fixed.run(packed, width)
            results = _split(packed, outputs, self._workspace, width)
        else:
            count = min(size for size in self._sessions if size >= len(rows))
            results = self._run_packed(packed, count)
        return [results[order.index(index)] for index in range(len(rows))]

    def interrupt(self) -> None:
        """Have the present run fail, and every later one; from any thread, while that runs."""
        for binding in list(self._bindings.values()):
            binding.interrupt()

    def compact(self, slot: Slot, start: int, path: Sequence[int]) -> None:
        """Move the K/V at `start + path[j]` to `start + j`, for a strictly rising `path`.

        For the accepted path of a tree that ran at `start`, before any later run of the slot.
        """
        if self._compaction is not None:
            self._compaction(slot, start, path)
        else:
            compact_host(slot, start, path)

    def _load(self, graphs: Mapping[str, str], *, capture: bool = False) -> dict[int, Session]:
        loaded = {}
        for rows in self._package.row_counts:
            path = self._package.file(graphs[str(rows)])
            session = Session(
                path, self.provider, self._threads, capture=capture, weights=self.weights
            )
            if session.capturing and self._spec.features and not keeps_features(session):
                session.capturing = False
                session.captures.counts.refused.append(
                    f"{path.name}: its features move with the text; export the package again"
                )
            loaded[rows] = session
        return loaded

    def _run_packed(self, rows: Sequence[Row], count: int) -> list[RowResult]:
        trees = any(row.parents is not None for row in rows)
        slots = [row.slot for row in rows] + [self._spare] * (count - len(rows))
        binding = self._binding(count, slots, trees)
        layout = lay_out(rows, count)
        _feed(binding, layout, count)
        if self._spec.features:
            if self._keeps_features(count, trees):
                _feed_places(binding, layout)
            else:
                _collect_features(binding, layout, slots)
        if trees:
            self._feed_trees(binding, layout, rows)
        outputs = self._collect(binding, len(layout.logits_index))
        self._workspace.bind(binding, len(layout.logits_index))
        binding.run("tree" if trees else "wide")
        return _split(rows, outputs, self._workspace)

    def _keeps_features(self, count: int, trees: bool) -> bool:
        sessions = self._tree_sessions if trees else self._sessions
        return not self.provider.on_host and keeps_features(sessions[count])

    def _binding(self, count: int, slots: list[Slot], trees: bool) -> Binding:
        key = (trees, *slots)
        binding = self._bindings.get(key)
        if binding is not None:
            self._bindings.move_to_end(key)
            return binding
        assert self._tree_sessions or not trees, "graphs for trees are loaded before they run"
        sessions = self._tree_sessions if trees else self._sessions
        binding = sessions[count].binding()
        for row, slot in enumerate(slots):
            binding.bind_slot(slot.buffers, row)
            if self._keeps_features(count, trees):
                bind_kept(binding, slot, row)
        self._bindings[key] = binding
        if len(self._bindings) > _KEPT_BINDINGS:
            self._bindings.popitem(last=False)
        return binding

    def _feed_trees(self, binding: Binding, layout: Layout, rows: Sequence[Row]) -> None:
        for index, (past, positions) in enumerate(zip(layout.pasts, layout.positions, strict=True)):
            parents = rows[index].parents if index < len(rows) else None
            width = positions.size
            bias = attention_bias(parents, width, past + width, self._spec.kv_type)
            binding.feed(f"attention_bias.{index}", bias)

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


def _feed(binding: Binding, layout: Layout, count: int) -> None:
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


def _collect_features(binding: Binding, layout: Layout, slots: Sequence[Slot]) -> None:
    """The features of a row's tokens are written where its slot keeps them."""
    for index, slot in enumerate(slots):
        width = layout.positions[index].size
        for name, rows in slot.feature_rows.items():
            binding.collect_rows(f"{name}.{index}", rows, layout.pasts[index], width)


def _feed_places(binding: Binding, layout: Layout) -> None:
    """Where in their slots the features of the rows' tokens belong."""
    for index, past in enumerate(layout.pasts):
        width = layout.positions[index].size
        binding.feed(f"{FEATURE_INDEX}.{index}", np.arange(past, past + width)[:, None])


def _split(
    rows: Sequence[Row],
    outputs: tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.float32]],
    workspace: Workspace,
    width: int | None = None,
) -> list[RowResult]:
    """`outputs` hold what rows want one after another; with `width`, so many of every row."""
    results, start = [], 0
    for index, row in enumerate(rows):
        if width is not None:
            start = index * width + len(row.tokens) - row.logits
        part = slice(start, start + row.logits)
        values, ids, logsumexp = (output[part].copy() for output in outputs)
        results.append(RowResult(values, ids, logsumexp, workspace.window(start)))  # type: ignore[arg-type]
        start += row.logits
    return results
