"""A drafter's graphs, loaded, and their bindings to slots."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from models.capture import MOST_GRAPHS, GraphCounts
from models.device_binding import DeviceBinding
from models.drafters.bound import (
    ChainGraph,
    DeviceNoise,
    Entries,
    FixedChainGraph,
    TreeGraph,
    capacity_of,
    collect_heads,
    feed_features,
)
from models.initializers import SharedWeights
from models.package import DrafterSpec, Package
from models.providers import Provider
from models.runs import Runs
from models.session import Binding, Session
from models.slots import Slot

Bound = TypeVar("Bound")

_KEPT_BINDINGS = 128
_PAST, _PRESENT = "past.", "present."

CHUNK = 256
"""Entries that one run adds at most, so that a long prompt needs no more memory than this."""

ENTRY_WIDTHS = (1, 2, 4, 8, 16)
"""Entries of a chain's first step in runs that are captured."""


class DrafterGraphs:
    """The graphs of one drafter. Run from one thread at a time.

    `steps` are the numbers of draft steps that there are graphs for, `depths` the depths of trees.
    """

    def __init__(
        self,
        package: Package,
        spec: DrafterSpec,
        provider: Provider,
        threads: int | None,
        weights: SharedWeights | None = None,
        runs: Runs | None = None,
    ) -> None:
        self.spec = spec
        self.provider = provider
        self._chains = {
            int(steps): Session(
                package.file(name), provider, threads, capture=True, weights=weights, runs=runs
            )
            for steps, name in spec.graphs.items()
        }
        self._trees = {
            int(depth): Session(package.file(name), provider, threads, weights=weights, runs=runs)
            for depth, name in spec.tree_graphs.items()
        }
        self.steps = tuple(sorted(self._chains))
        self.depths = tuple(sorted(self._trees))
        self._bound: OrderedDict[tuple[object, ...], Any] = OrderedDict()
        shape = (max(self.steps, default=0), spec.draft_vocab)
        self._zeros = np.zeros(shape if spec.kind != "medusa" else (0, 0), dtype=np.float32)
        self._zeros.flags.writeable = False
        self._silent: dict[int, NDArray[np.float32]] = {}
        self._noise: dict[int, DeviceNoise] = {}

    @property
    def graph_counts(self) -> list[GraphCounts]:
        """How runs ran, by session."""
        sessions = (*self._chains.values(), *self._trees.values())
        return [session.captures.counts for session in sessions]

    def fixed_width(self, steps: int, entries: Entries) -> int | None:
        """To how many entries, further ones before them, `entries` are widened to be a run that is
        captured; None where it is none. They are made again as they were."""
        session = self._chains[steps]
        if not session.capturing or session.captures.full:
            return None
        count = entries.ids.size
        width = next((width for width in ENTRY_WIDTHS if width >= count), None)
        return width if width is not None and width <= entries.end else None

    def chain(
        self,
        slot: Slot,
        buffers: Sequence[tuple[Any, Any]],
        steps: int,
        width: int | None = None,
        entries: int = CHUNK,
    ) -> ChainGraph:
        """The graph of `steps` steps, bound to these K/V buffers of `slot`; with `width` for runs
        over so many entries, which are captured. On the host each small number of `entries` has a
        binding of its own: to bind their inputs anew takes longer than to feed them."""
        own = entries if self.provider.on_host and entries <= ENTRY_WIDTHS[-1] else 0
        return self._kept(
            (False, steps, slot, width, own), lambda: self._chain(slot, buffers, steps, width)
        )

    def _chain(
        self, slot: Slot, buffers: Sequence[tuple[Any, Any]], steps: int, width: int | None
    ) -> ChainGraph:
        session = self._chains[steps]
        binding = self._binding(session, buffers)
        if width is None:
            return ChainGraph(self.spec, binding, steps)
        noise = self._noise.get(steps)
        if noise is None:
            noise = self._noise[steps] = DeviceNoise(self._zeros[:steps], self.provider)
        return FixedChainGraph(self.spec, binding, slot, width, capacity_of(buffers), noise)

    def tree(self, slot: Slot, buffers: Sequence[tuple[Any, Any]], depth: int) -> TreeGraph:
        return self._kept(
            (True, depth, slot),
            lambda: TreeGraph(self.spec, self._binding(self._trees[depth], buffers), depth),
        )

    def heads(self, slot: Slot) -> Binding:
        """The one graph of heads that answer at once."""
        return self._kept((False, 0, slot), lambda: self._heads(slot))

    def _heads(self, slot: Slot) -> Binding:
        session, spec = self._chains[self.steps[0]], self.spec
        binding = session.binding()
        if not session.capturing or session.captures.full or not isinstance(binding, DeviceBinding):
            return binding
        assert spec.reads is not None, "heads read a feature"
        feed_features(binding, slot, spec.reads, 0, 1)
        collect_heads(binding, spec)
        binding.gather()
        binding.keep()
        return binding

    def silence(self, steps: int) -> NDArray[np.float32]:
        """Noise of zeros: the likeliest token is taken."""
        view = self._silent.get(steps)
        if view is None:
            view = self._silent[steps] = self._zeros[:steps]
        return view

    def _kept(self, key: tuple[object, ...], make: Callable[[], Bound]) -> Bound:
        bound: Bound | None = self._bound.get(key)
        if bound is None:
            bound = self._bound[key] = make()
            # What was captured stays: a new binding would be captured anew.
            most = _KEPT_BINDINGS if self.provider.on_host else MOST_GRAPHS
            if len(self._bound) > most:
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


def _buffer(buffers: Sequence[tuple[Any, Any]], name: str) -> Any:
    _, layer, _, kind, *_ = name.split(".")
    return buffers[int(layer)][("key", "value").index(kind)]
