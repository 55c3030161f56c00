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
from models.transfers import Piece

HOST_INPUTS = ("total_length",)
"""Inputs, by the beginning of their names, that kernels on a device read in the host's memory."""


class DeviceBinding(Binding):
    """Once it is bound whole its small inputs and outputs may be gathered (`gather`), so that each
    run has one copy to the device and one back; with `keep` its runs are captured as well. Neither
    is bound again after that."""

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
        self._sent: Piece | None = None
        self._received: Piece | None = None

    def keep(self) -> None:
        """Have every run from now on captured, or replayed."""
        assert self._graph is None, "it has a graph"
        self._graph = self._captures.new()

    def gather(self) -> None:
        """Have what is fed and lent by now sent in one piece from now on, and what is collected
        fetched in one. Their shapes stay as they are."""
        assert self._sent is None, "it is gathered once"
        fed = {name: value.numpy() for name, (_, value) in self._places.items()}
        lent = {name: values for name, (values, _) in self._lent.items()}
        self._sent = Piece({**fed, **lent}, self._provider)
        for name, array in self._sent.arrays.items():
            array[...] = fed[name] if name in fed else lent[name]
            where = (self._provider.memory, self._sent.addresses[name])
            self.feed_at(name, *where, array.shape, array.dtype.type)
        fetched = {name: values for name, (values, _) in self._fetched.items()}
        self._received = Piece(fetched, self._provider)
        for name, array in self._received.arrays.items():
            where = (self._provider.memory, self._received.addresses[name])
            self.collect_at(name, *where, array.shape, array.dtype.type)
        self._places.clear()
        self._lent = {name: (values, None) for name, values in lent.items()}
        self._fetched = {name: (values, None) for name, values in fetched.items()}

    def has_input(self, name: str) -> bool:
        return name in self._inputs

    def feed(self, name: str, values: NDArray[Any]) -> None:
        if name not in self._inputs:
            return  # the standard lowering has no use for some
        if name.startswith(HOST_INPUTS):
            super().feed(name, values)
            return
        if self._sent is not None:
            self._sent.arrays[name][...] = values
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
            assert self._sent is None, "what is gathered is not bound again"
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
        assert self._received is None, "what is gathered is not bound again"
        value = place(values, self._provider)
        self._fetched[name] = (values, value)
        self._bind_output(name, value)

    def run(self, why: str = "") -> None:
        self._send()
        if self._graph is None:
            options = self._captures.leave_out(why or "fixed")
        else:
            options = self._captures.enter(self._graph, self._changes)
        self._runs.run(self._session, self._binding, options)
        self._fetch()

    def _send(self) -> None:
        for name, (values, value) in self._lent.items():
            # What nobody can write to is as it was.
            if not values.flags.writeable and name not in self._stale:
                continue
            if self._sent is None:
                value.update_inplace(np.asarray(values, order="C"))
            else:
                self._sent.arrays[name][...] = values
        self._stale.clear()
        if self._sent is not None:
            self._sent.send()

    def _fetch(self) -> None:
        if self._received is not None:
            self._received.fetch()
        for name, (values, value) in self._fetched.items():
            values[...] = value.numpy() if self._received is None else self._received.arrays[name]
