"""A drafter's graphs as they are bound to slots: what they are fed, and what they say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.buffers import place
from models.counting import numbers
from models.device_binding import DeviceBinding
from models.package import FEATURE_INDEX, DrafterSpec
from models.providers import Provider
from models.session import Binding
from models.slots import Slot


class Entries(NamedTuple):
    """What a run adds to the drafter's K/V: `ids` from entry `start` on."""

    ids: NDArray[np.int64]
    start: int

    @property
    def end(self) -> int:
        return self.start + self.ids.size


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
        self._drawing: tuple[float, float, int] | None = None
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

    def draw(
        self, noise: NDArray[np.float32], inverse_temperature: float, top_p: float, top_k: int
    ) -> None:
        """How the next run draws; `noise` [K, Vd] is lent until then."""
        self._binding.lend("noise", noise)
        self._feed_drawing(inverse_temperature, top_p, top_k)

    def _feed_drawing(self, inverse_temperature: float, top_p: float, top_k: int) -> None:
        if self._drawing == (inverse_temperature, top_p, top_k):
            return
        self._drawing = (inverse_temperature, top_p, top_k)
        binding = self._binding
        binding.feed("inverse_temperature", np.array([inverse_temperature], dtype=np.float32))
        binding.feed("top_p", np.array([top_p], dtype=np.float32))
        binding.feed("top_k", np.array([top_k], dtype=np.int64))

    def run(self, slot: Slot, entries: Entries) -> None:
        feed_entries(self._binding, slot, self._reads, entries)
        end = entries.end
        self._totals[:] = numbers(end, end + self.steps, np.int32)
        self._place(end)
        self._binding.run("entries")

    def _place(self, end: int) -> None:
        last, behind = end - 1, end - 1 + self.steps
        self._lengths[:] = numbers(last, behind, np.int32)
        self._positions[:, 0, 0] = numbers(last, behind, np.int64)


class DeviceNoise:
    """Noise [K, Vd] on a device, which all bindings of one number of steps read."""

    def __init__(self, values: NDArray[np.float32], provider: Provider) -> None:
        self.value = place(values, provider)
        self._values = values

    def set(self, values: NDArray[np.float32]) -> None:
        """What nobody can write to, as what is drawn by where nothing is drawn, is copied once."""
        if values is not self._values or values.flags.writeable:
            self.value.update_inplace(values)
            self._values = values


class FixedChainGraph(ChainGraph):
    """The same over `width` entries, captured: the K/V length that kernels read in the host's
    memory is the buffers' capacity."""

    def __init__(
        self,
        spec: DrafterSpec,
        binding: Binding,
        slot: Slot,
        width: int,
        capacity: int,
        noise: DeviceNoise,
    ) -> None:
        super().__init__(spec, binding, noise.value.shape()[0])
        assert isinstance(binding, DeviceBinding), "only devices capture"
        self._noise = noise
        binding.hold("noise", noise.value)
        self._totals[...] = capacity
        feed_entries(binding, slot, spec.reads, Entries(np.zeros(width, dtype=np.int64), 0))
        self._feed_drawing(1.0, 1.0, 1)
        binding.gather()
        binding.keep()

    def draw(
        self, noise: NDArray[np.float32], inverse_temperature: float, top_p: float, top_k: int
    ) -> None:
        self._noise.set(noise)
        self._feed_drawing(inverse_temperature, top_p, top_k)

    def run(self, slot: Slot, entries: Entries) -> None:
        feed_entries(self._binding, slot, self._reads, entries)
        self._place(entries.end)
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
        self._binding.run("tree")


def feed_entries(binding: Binding, slot: Slot, reads: str | None, entries: Entries) -> None:
    """The inputs of the first step."""
    binding.feed("input_ids", entries.ids[None])
    binding.feed("position_ids.0", _positions(entries))
    if reads is not None:
        feed_features(binding, slot, reads, entries.start, entries.ids.size)


def feed_features(binding: Binding, slot: Slot, reads: str, start: int, count: int) -> None:
    """Those of `count` tokens from `start` on, which are read where the slot keeps them."""
    if isinstance(binding, DeviceBinding) and binding.has_input(FEATURE_INDEX):
        binding.hold("features", slot.features[reads])
        binding.feed(FEATURE_INDEX, np.arange(start, start + count))
    else:
        binding.feed_rows("features", slot.feature_rows[reads], start, count)


def collect_heads(
    binding: Binding, spec: DrafterSpec
) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.float32]]:
    """Of every head the largest logits, falling, their ids, and the log-sum-exp of all."""
    shape = (spec.longest, spec.top_k)
    return (
        binding.collect("top_values", shape, np.float32),
        binding.collect("top_ids", shape, np.int64),
        binding.collect("logsumexp", shape[:1], np.float32),
    )


def modules(spec: DrafterSpec) -> int:
    """How many steps run over the entries: one, but for heads with a module for each step."""
    return max(1, spec.lookahead)


def _positions(entries: Entries) -> NDArray[np.int64]:
    return numbers(entries.start, entries.end, np.int64)[None]


def capacity_of(buffers: Sequence[tuple[Any, Any]]) -> int:
    """Entries that the buffers [1, kv_heads, capacity, head_dim] hold."""
    return int(buffers[0][0].shape()[2])
