"""A drafter's graphs, loaded, and their bindings to slots."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from models.package import DrafterSpec, Package
from models.providers import Provider, load_onnxruntime
from models.session import Binding, Session
from models.slots import Slot

Bound = TypeVar("Bound")

_KEPT_BINDINGS = 64
_PAST, _PRESENT = "past.", "present."


@dataclass(frozen=True, slots=True)
class Entries:
    """What a run adds to the drafter's K/V: `ids` from entry `start` on."""

    ids: NDArray[np.int64]
    start: int

    @property
    def end(self) -> int:
        return self.start + self.ids.size


class DrafterGraphs:
    """The graphs of one drafter. Run from one thread at a time.

    `steps` are the numbers of draft steps that there are graphs for, `depths` the depths of trees.
    """

    def __init__(
        self, package: Package, spec: DrafterSpec, provider: Provider, threads: int | None
    ) -> None:
        self.spec = spec
        self.provider = provider
        self._chains = {
            int(steps): Session(package.file(name), provider, threads)
            for steps, name in spec.graphs.items()
        }
        self._trees = {
            int(depth): Session(package.file(name), provider, threads)
            for depth, name in spec.tree_graphs.items()
        }
        self.steps = tuple(sorted(self._chains))
        self.depths = tuple(sorted(self._trees))
        self._bound: OrderedDict[tuple[object, ...], Any] = OrderedDict()
        shape = (max(self.steps, default=0), spec.draft_vocab)
        self._zeros = np.zeros(shape if spec.kind != "medusa" else (0, 0), dtype=np.float32)
        self._silent: dict[int, Any] = {}

    def chain(self, slot: Slot, buffers: Sequence[tuple[Any, Any]], steps: int) -> ChainGraph:
        """The graph of `steps` steps, bound to these K/V buffers of `slot`."""
        return self._kept(
            (False, steps, slot),
            lambda: ChainGraph(self.spec, self._binding(self._chains[steps], buffers), steps),
        )

    def tree(self, slot: Slot, buffers: Sequence[tuple[Any, Any]], depth: int) -> TreeGraph:
        return self._kept(
            (True, depth, slot),
            lambda: TreeGraph(self.spec, self._binding(self._trees[depth], buffers), depth),
        )

    def heads(self, slot: Slot) -> Binding:
        """The one graph of heads that answer at once."""
        return self._kept((False, 0, slot), self._chains[self.steps[0]].binding)

    def silence(self, steps: int) -> Any:
        """Noise of zeros, on the device already: the likeliest token is taken."""
        value = self._silent.get(steps)
        if value is None:
            make = load_onnxruntime().OrtValue.ortvalue_from_numpy
            value = self._silent[steps] = make(self._zeros[:steps], self.provider.memory, 0)
        return value

    def _kept(self, key: tuple[object, ...], make: Callable[[], Bound]) -> Bound:
        bound: Bound | None = self._bound.get(key)
        if bound is None:
            bound = self._bound[key] = make()
            if len(self._bound) > _KEPT_BINDINGS:
                self._bound.popitem(last=False)
        else:
            self._bound.move_to_end(key)
        return bound

    def _binding(self, session: Session, buffers: Sequence[tuple[Any, Any]]) -> Binding:
        """Every past and all the presents of a layer, of which each step has one, are its one
        buffer."""
        binding = session.binding()
        for name in session.input_names:
            if name.startswith(_PAST):
                binding.hold(name, _buffer(buffers, name))
        for name in session.output_names:
            if name.startswith(_PRESENT):
                binding.bind_result(name, _buffer(buffers, name))
        return binding


class ChainGraph:
    """K steps in one run, bound to a slot: step 0 over the entries, the others over one draft each.

    After `run`: the drafts `ids` [K]; of each step the largest logits `values` [K, T], falling,
    their ids `listed`, the log-sum-exp of all, and the `weights` that the draft was drawn by.
    """

    def __init__(self, spec: DrafterSpec, binding: Binding, steps: int) -> None:
        self.steps = steps
        self._binding = binding
        self._reads = spec.reads
        self._lengths = np.empty(steps, dtype=np.int32)
        self._totals = np.empty(steps, dtype=np.int32)
        self._positions = np.empty((steps, 1, 1), dtype=np.int64)
        self._beyond = np.arange(steps, dtype=np.int32)
        for step in range(steps):
            binding.lend(f"seqlens_k.{step}", self._lengths[step : step + 1])
            binding.lend(f"total_length.{step}", self._totals[step, ...])
            if step:
                binding.lend(f"position_ids.{step}", self._positions[step])
        shape = (steps, spec.top_k)
        self.ids = binding.collect("draft_ids", (steps,), np.int64)
        self.values = binding.collect("top_values", shape, np.float32)
        self.listed = binding.collect("top_ids", shape, np.int64)
        self.weights = binding.collect("weights", shape, np.float32)
        self.logsumexp = binding.collect("logsumexp", (steps,), np.float32)

    def draw(self, noise: Any, inverse_temperature: float, top_p: float, top_k: int) -> None:
        """How the next run draws."""
        binding = self._binding
        binding.hold("noise", noise)
        binding.feed("inverse_temperature", np.array([inverse_temperature], dtype=np.float32))
        binding.feed("top_p", np.array([top_p], dtype=np.float32))
        binding.feed("top_k", np.array([top_k], dtype=np.int64))

    def run(self, slot: Slot, entries: Entries) -> None:
        feed_entries(self._binding, slot, self._reads, entries)
        np.add(self._beyond, entries.end, out=self._totals)
        np.subtract(self._totals, 1, out=self._lengths)
        self._positions[:, 0, 0] = self._lengths
        self._binding.run()


class TreeGraph:
    """D levels of W nodes in one run, bound to a slot. Candidates are numbered through the levels:
    `ids` and their cumulative log-probabilities `scores`."""

    def __init__(self, spec: DrafterSpec, binding: Binding, depth: int) -> None:
        width = spec.tree_width
        self.depth, self.width = depth, width
        self._binding = binding
        self._reads = spec.reads
        self._lengths = np.empty(depth, dtype=np.int32)
        self._totals = np.empty(depth, dtype=np.int32)
        self._positions = np.empty((depth, 1, width), dtype=np.int64)
        self._context = np.empty(1, dtype=np.int64)
        self._levels = np.arange(depth)[:, None]
        self._beyond = (np.arange(depth) * width).astype(np.int32)
        count = width + (depth - 1) * width * width
        self.ids = np.empty(count, dtype=np.int64)
        self.scores = np.empty(count, dtype=np.float32)
        self.chosen = np.empty((depth, width), dtype=np.int64)
        binding.lend("context", self._context)
        first = 0
        for level in range(depth):
            binding.lend(f"seqlens_k.{level}", self._lengths[level : level + 1])
            binding.lend(f"total_length.{level}", self._totals[level, ...])
            if level:
                binding.lend(f"position_ids.{level}", self._positions[level])
            shape = (width if level else 1, width)
            end = first + shape[0] * width
            binding.borrow(f"ids.{level}", self.ids[first:end].reshape(shape))
            binding.borrow(f"scores.{level}", self.scores[first:end].reshape(shape))
            binding.borrow(f"chosen.{level}", self.chosen[level])
            first = end

    def run(self, slot: Slot, entries: Entries) -> None:
        feed_entries(self._binding, slot, self._reads, entries)
        self._context[0] = entries.end
        np.add(self._beyond, entries.end, out=self._totals)
        np.subtract(self._totals, 1, out=self._lengths)
        self._positions[:, 0] = self._levels + entries.end - 1
        self._binding.run()


def feed_entries(binding: Binding, slot: Slot, reads: str | None, entries: Entries) -> None:
    """The inputs of the first step."""
    binding.feed("input_ids", entries.ids[None])
    binding.feed("position_ids.0", _positions(entries))
    if reads is not None:
        binding.feed_rows("features", slot.feature_rows[reads], entries.start, entries.ids.size)


def modules(spec: DrafterSpec) -> int:
    """How many steps run over the entries: one, but for heads with a module for each step."""
    return max(1, spec.lookahead)


def _positions(entries: Entries) -> NDArray[np.int64]:
    return np.arange(entries.start, entries.end)[None]


def _buffer(buffers: Sequence[tuple[Any, Any]], name: str) -> Any:
    _, layer, _, kind, *_ = name.split(".")
    return buffers[int(layer)][("key", "value").index(kind)]
