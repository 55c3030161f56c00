"""A binding on a device: inputs are updated where they lie, outputs are fetched when they are made.

ONNX Runtime copies an input in the host's memory to the device when it is bound, not when it is
run, and a captured run reads nothing but the addresses that it was captured with. So every small
input has a place on the device that keeps its address, and is updated in place; only what kernels
read in the host's memory (`HOST_INPUTS`) is bound as on a CPU.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.binding import Binding
from models.buffers import place
from models.capture import Captures
from models.providers import Provider
from models.runs import Runs

HOST_INPUTS = ("total_length",)
"""Inputs, by the beginning of their names, that kernels on a device read in the host's memory."""


class DeviceBinding(Binding):
    """With `keep` its runs are captured: it must be bound whole before, and not again after."""

    def __init__(self, session: Any, provider: Provider, captures: Captures, runs: Runs) -> None:
        super().__init__(session, runs)
        self._provider = provider
        self._captures = captures
        self._inputs = frozenset(value.name for value in session.get_inputs())
        self._graph: int | None = None
        self._places: dict[str, tuple[tuple[int, ...], Any]] = {}
        self._lent: dict[str, tuple[NDArray[Any], Any]] = {}
        self._stale: set[str] = set()
        self._fetched: dict[str, tuple[NDArray[Any], Any]] = {}

    def keep(self) -> None:
        """Have every run from now on captured, or replayed."""
        assert self._graph is None, "it has a graph"
        self._graph = self._captures.new()

    def has_input(self, name: str) -> bool:
        return name in self._inputs

    def feed(self, name: str, values: NDArray[Any]) -> None:
        if name not in self._inputs:
            return  # the standard lowering has no use for some
        if name.startswith(HOST_INPUTS):
            super().feed(name, values)
            return
        values = np.asarray(values, order="C")
        shape, value = self._places.get(name, (None, None))
        if value is None or shape != values.shape:
            value = place(values, self._provider)
            self._places[name] = (values.shape, value)
            self._bind_input(name, value)
        else:
            value.update_inplace(values)

    def set(self, name: str, value: int, like: NDArray[Any]) -> None:
        self.feed(name, np.full_like(like, value))

    def lend(self, name: str, values: NDArray[Any]) -> None:
        if name.startswith(HOST_INPUTS):
            super().lend(name, values)
            return
        known = self._lent.get(name)
        if known is None or known[0].shape != values.shape:
            value = place(values, self._provider)
            self._bind_input(name, value)
        else:
            value = known[1]
        if known is None or known[0] is not values:
            self._lent[name] = (values, value)
            self._stale.add(name)

    def collect(self, name: str, shape: tuple[int, ...], kind: type[np.generic]) -> NDArray[Any]:
        array = self._fetched[name][0] if name in self._fetched else None
        if array is None or array.shape != shape:
            array = np.zeros(shape, dtype=kind)
            self.borrow(name, array)
        return array

    def borrow(self, name: str, values: NDArray[Any]) -> None:
        value = place(values, self._provider)
        self._fetched[name] = (values, value)
        self._bind_output(name, value)

    def run(self, why: str = "") -> None:
        for name, (values, value) in self._lent.items():
            # What nobody can write to is as it was.
            if values.flags.writeable or name in self._stale:
                value.update_inplace(np.asarray(values, order="C"))
        self._stale.clear()
        if self._graph is None:
            options = self._captures.leave_out(why or "fixed")
        else:
            options = self._captures.enter(self._graph, self._changes)
        self._runs.run(self._session, self._binding, options)
        for values, value in self._fetched.values():
            values[...] = value.numpy()
