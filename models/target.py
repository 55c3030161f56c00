"""The target: packed rows of several requests verified in one run."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from models.capture import GraphCounts
from models.compaction import DeviceCompaction, compact_host
from models.feeding import collect_features, feed, feed_places, split
from models.fixed_runs import FixedRuns, bind_kept, fast_tokens, keeps_features
from models.initializers import SharedWeights
from models.lone_runs import LoneRuns
from models.memory import require_tree_memory
from models.package import Package, require_unchanged
from models.providers import Provider
from models.rows import LEAST_WIDTH, Layout, Row, RowResult, lay_out
from models.runs import Runs
from models.session import Binding, Session
from models.slots import Slot, make_slot
from models.tensorrt import EngineSessions, in_profile
from models.trees import attention_bias
from models.workspace import Workspace

__all__ = ["LEAST_WIDTH", "Row", "RowResult", "Target"]

Say = Callable[[str], None]

_KEPT_BINDINGS = 64


class Target:
    """The target model of a package with its graphs loaded. Run from one thread at a time.

    Without `check_memory` trees are loaded whether or not they seem to fit.
    """

    def __init__(
        self,
        package: Package,
        provider: Provider,
        threads: int | None = None,
        *,
        check_memory: bool = True,
    ) -> None:
        self._package = package
        self._check_memory = check_memory
        self._spec = package.manifest.target
        self._threads = threads
        self.provider = provider
        shares = provider.use.share_weights and not provider.on_host
        self.weights = SharedWeights(provider) if shares else None
        self.running = Runs()
        """Of all its graphs; drafters that run beside it share them."""

        self._engines: EngineSessions | None = None
        self._sessions: Mapping[int, Session]
        if provider.device == "tensorrt":
            self._sessions = self._engines = EngineSessions(
                package, provider, threads, self.running
            )
        else:
            self._sessions = self._load(self._spec.graphs, capture=True)
        self._tree_sessions: Mapping[int, Session] = {}
        self._loading_trees = threading.Lock()
        self._bindings: OrderedDict[tuple[object, ...], Binding] = OrderedDict()
        widest = max(provider.use.widths) if provider.fixes else LEAST_WIDTH
        self._workspace = Workspace(self._spec.vocab_size, provider, self.most_rows * widest)
        self._spare = make_slot(-1, self._spec, widest, provider)
        self._compaction: DeviceCompaction | None = None
        self._lone: LoneRuns | None = None
        self._fixed: FixedRuns | None = None
        if provider.on_host and 1 in self._sessions:
            self._lone = LoneRuns(self._spec, self._sessions[1], self._workspace)
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
            if self._check_memory:
                require_tree_memory(self._package, self.provider.use)
            if self.provider.memory != "cpu":
                assert self._spec.compact_graph is not None, "packages for devices have one"
                graph = self._package.file(self._spec.compact_graph)
                self._compaction = DeviceCompaction(
                    graph, self.provider, self._threads, self.running
                )
            self._tree_sessions = self._load(self._spec.tree_graphs)

    def make_slots(self, count: int, context: int) -> list[Slot]:
        if self._engines is not None and context > self._spare.context:
            # As large as they are: with fewer rows than a graph has the shape is the same, and so
            # is the engine.
            assert self._fixed is not None, "each shape has an engine"
            self._spare = self._fixed.spare = make_slot(-1, self._spec, context, self.provider)
        return [make_slot(index, self._spec, context, self.provider) for index in range(count)]

    def warm_up(
        self, slots: Sequence[Slot], widest: int = LEAST_WIDTH, say: Say = lambda line: None
    ) -> int:
        """Run every shape in use once, so that none is captured, and no engine is built, while a
        request waits; returns how many. `slots` hold nothing; prompts come in chunks of up to
        `widest` tokens. Building takes minutes: then `say` is told of each shape before it begins.
        Where nothing is captured or built there is nothing to do."""
        if self._fixed is None:
            return 0
        narrow = list(self._fixed.shapes(slots, self.fast_tokens))
        wide = [] if self._engines is None else self._wide_shapes(slots, widest)
        every = len(narrow) + len(wide)
        for index, rows in enumerate((*narrow, *wide)):
            if self._engines is not None:
                what = f"{len(rows)} x {len(rows[0].tokens)} tokens"
                say(f"TensorRT engine {index + 1} of {every}: {what}")
            if index < len(narrow):
                self.run(rows)
            else:
                self._run_packed(rows, self._graph_rows(len(rows)))
        return every

    def _wide_shapes(self, slots: Sequence[Slot], widest: int) -> list[list[Row]]:
        """One for each graph that runs of any width may need."""
        most = min(self.most_rows, len(slots))
        counts = {self._graph_rows(count): count for count in range(1, 1 + most)}
        width = min(widest, slots[0].context)
        return [
            [Row(slot, (0,) * width, logits=1) for slot in slots[:count]]
            for count in counts.values()
        ]

    def _graph_rows(self, count: int) -> int:
        """Rows of the smallest graph for `count`."""
        return min(size for size in self._sessions if size >= count)

    def run(self, rows: Sequence[Row]) -> list[RowResult]:
        """Run the target on `rows` (at most `most_rows`, of different slots).

        Nothing is committed: the caller commits what it accepts. The whole rows of the results
        are overwritten by the next run. Trees need `load_trees` before.
        """
        assert 0 < len(rows) <= self.most_rows, "as many rows as the largest graph takes"
        if len(rows) == 1 and self._fixed is None:
            if self._lone is not None and self._lone.takes(rows[0]):
                return [self._lone.run(rows[0])]
            return self._run_packed(rows, min(self._sessions))
        order = sorted(range(len(rows)), key=lambda index: rows[index].slot.index)
        packed = [rows[index] for index in order]
        trees = any(row.parents is not None for row in rows)
        width = None if self._fixed is None or trees else self._fixed.width(packed)
        if self._fixed is not None and width is not None:
            outputs = self._fixed.run(packed, width)
            results = split(packed, outputs, self._workspace, width)
        else:
            results = self._run_packed(packed, self._graph_rows(len(rows)))
        return [results[order.index(index)] for index in range(len(rows))]

    def interrupt(self) -> None:
        """Have the present runs fail, those of drafters that share `running` too, and every later
        one; from any thread. What that does not reach is said in `Runs.interrupt`."""
        self.running.interrupt()

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
                path,
                self.provider,
                self._threads,
                capture=capture,
                weights=self.weights,
                runs=self.running,
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
        if self._engines is not None:
            layout = in_profile(layout)
        feed(binding, layout, count)
        if self._spec.features:
            if self._keeps_features(count, trees):
                feed_places(binding, layout)
            else:
                collect_features(binding, layout, slots)
        if trees:
            self._feed_trees(binding, layout, rows)
        outputs = self._collect(binding, len(layout.logits_index))
        self._workspace.bind(binding, len(layout.logits_index))
        binding.run("tree" if trees else "wide")
        return split(rows, outputs, self._workspace)

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
