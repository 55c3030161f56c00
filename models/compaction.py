"""Moves the K/V and features of an accepted path together, behind the committed tokens.

A tree's tokens lie in a slot in the order of the row; a path through them leaves gaps. Only the
tokens from the first gap on are moved.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from models.providers import Provider
from models.runs import Runs
from models.session import Binding, Session
from models.slots import Slot


def moves(path: Sequence[int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """From where to where, relative to the row's first token, for a strictly rising `path`."""
    sources = np.asarray(path, dtype=np.int64)
    destinations = np.arange(len(sources))
    assert (np.diff(sources, prepend=-1) > 0).all(), "a path rises"
    moved = sources != destinations
    return sources[moved], destinations[moved]


def scatter_indices(kv_heads: int, positions: NDArray[np.int64]) -> NDArray[np.int64]:
    """[1, kv_heads, n, 3]: (0, head, position), as the package's graph scatters."""
    indices = np.zeros((1, kv_heads, len(positions), 3), dtype=np.int64)
    indices[..., 1] = np.arange(kv_heads)[:, None]
    indices[..., 2] = positions
    return indices


def compact_host(slot: Slot, start: int, path: Sequence[int]) -> None:
    """Move what lies at `start + path[j]` to `start + j`, in buffers in the host's memory."""
    sources, destinations = moves(path)
    if sources.size:
        for pair in slot.buffers:
            for buffer in pair:
                values = buffer.numpy()
                values[:, :, start + destinations] = values[:, :, start + sources]
        for rows in slot.features.values():
            values = rows.numpy()
            values[start + destinations] = values[start + sources]


class DeviceCompaction:
    """The same by the package's graph, for buffers on a device."""

    def __init__(
        self,
        graph: Path,
        provider: Provider,
        threads: int | None = None,
        runs: Runs | None = None,
    ) -> None:
        self._session = Session(graph, provider, threads, runs=runs)
        self._bindings: dict[Slot, Binding] = {}

    def __call__(self, slot: Slot, start: int, path: Sequence[int]) -> None:
        sources, destinations = moves(path)
        if sources.size:
            kv_heads = slot.buffers[0][0].shape()[1]
            binding = self._binding(slot)
            binding.feed("sources", start + sources)
            binding.feed("destinations", scatter_indices(kv_heads, start + destinations))
            binding.run("compaction")

    def _binding(self, slot: Slot) -> Binding:
        binding = self._bindings.get(slot)
        if binding is None:
            binding = self._bindings[slot] = self._session.binding()
            binding.bind_slot(slot.buffers, 0)
            for name, rows in slot.features.items():
                binding.bind_in_place(f"feature.{name}", f"moved.{name}", rows)
        return binding
