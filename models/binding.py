"""What a session's inputs and outputs are bound to, kept between runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.buffers import TokenRows
from models.providers import load_onnxruntime
from models.runs import Runs

_SMALL_BYTES, _MOST_MADE = 1 << 14, 256
"""Arrays that are kept for when their shape comes again: their size and number at most."""


class Binding:
    """An IOBinding whose small inputs and outputs are rebound only when their shape changes.

    Host arrays are bound without a copy: writing into the array returned by `array` is all that a
    further run of the same shape needs. What differs on a device is in `models.device_binding`.
    """

    def __init__(self, session: Any, runs: Runs) -> None:
        self._session = session
        self._runs = runs
        self._binding = session.io_binding()
        self._ort = load_onnxruntime()
        self._run_options = self._ort.RunOptions()
        self._changes = 0
        self._arrays: dict[str, NDArray[Any]] = {}
        self._kept: dict[str, Any] = {}
        self._made: dict[tuple[str, tuple[int, ...]], tuple[NDArray[Any], Any]] = {}
        self._placed: dict[str, tuple[int, tuple[int, ...]]] = {}
        self._outputs: dict[str, int] = {}

    @property
    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """The host arrays that are bound, by the name of their input or output."""
        return self._arrays

    def bind_in_place(self, source: str, result: str, value: Any) -> None:
        """Bind one OrtValue as the input `source` and the output `result`."""
        self._bind_input(source, value)
        self.bind_result(result, value)

    def bind_result(self, name: str, value: Any) -> None:
        """Have output `name` written to this OrtValue."""
        self._bind_output(name, value)

    def bind_slot(self, buffers: Sequence[tuple[Any, Any]], row: int) -> None:
        """Bind a slot's K/V buffers, a key and a value per layer, in place as those of `row`."""
        for layer, pair in enumerate(buffers):
            for kind, value in zip(("key", "value"), pair, strict=True):
                name = f"{layer}.{row}.{kind}"
                self.bind_in_place(f"past.{name}", f"present.{name}", value)

    def feed(self, name: str, values: NDArray[Any]) -> None:
        """Give input `name` these values, copied into the bound array of their shape."""
        array = self._arrays.get(name)
        if array is None or array.shape != values.shape:
            array = self._keep_made(name, values.shape, values.dtype)
            self._bind_input(name, self._kept[name])
        array[...] = values

    def set(self, name: str, value: int, like: NDArray[Any]) -> None:
        """Give input `name`, of the shape and type of `like`, this value everywhere."""
        array = self._arrays.get(name)
        if array is None:
            array = like.copy()
            self._keep(name, array)
            self._bind_input(name, self._kept[name])
        array.fill(value)

    def collect(self, name: str, shape: tuple[int, ...], kind: type[np.generic]) -> NDArray[Any]:
        """The host array that output `name` is written to; valid until the next run."""
        array = self._arrays.get(name)
        if array is None or array.shape != shape:
            array = self._keep_made(name, shape, kind)
            self._bind_output(name, self._kept[name])
        return array

    def collect_at(
        self,
        name: str,
        memory: str,
        address: int,
        shape: tuple[int, ...],
        kind: type[np.generic],
    ) -> None:
        """Have output `name` written to `address` in `memory`, which the caller keeps."""
        if self._placed.get(name) != (address, shape):
            self._binding.bind_output(name, memory, 0, kind, list(shape), address)
            self._changes += 1
            self._placed[name] = (address, shape)
            self._note(name)

    def collect_rows(self, name: str, rows: TokenRows, start: int, count: int) -> None:
        """Have output `name` [count, F] written to `rows` from `start` on."""
        self.collect_at(name, rows.memory, rows.at(start), (count, rows.width), rows.kind)

    def feed_rows(self, name: str, rows: TokenRows, start: int, count: int) -> None:
        """Have input `name` [count, F] read from `rows` from `start` on."""
        self.feed_at(name, rows.memory, rows.at(start), (count, rows.width), rows.kind)

    def feed_at(
        self, name: str, memory: str, address: int, shape: tuple[int, ...], kind: type[np.generic]
    ) -> None:
        """Have input `name` read from `address` in `memory`, which the caller keeps."""
        if self._placed.get(name) != (address, shape):
            self._binding.bind_input(name, memory, 0, kind, list(shape), address)
            self._changes += 1
            self._placed[name] = (address, shape)

    def lend(self, name: str, values: NDArray[Any]) -> None:
        """Have input `name` read `values` themselves, which the caller keeps and may change."""
        if self._arrays.get(name) is not values:
            self._keep(name, values)
            self._bind_input(name, self._kept[name])

    def borrow(self, name: str, values: NDArray[Any]) -> None:
        """Have output `name` written to `values`, which the caller keeps."""
        self._keep(name, values)
        self.bind_result(name, self._kept[name])

    def hold(self, name: str, value: Any) -> None:
        """Have input `name` read this OrtValue."""
        if self._kept.get(name) is not value:
            self._kept[name] = value
            self._bind_input(name, value)

    def copy_of(self, name: str) -> NDArray[Any]:
        """What the last run wrote to output `name`, wherever it lies, as a host array."""
        values: NDArray[Any] = self._binding.get_outputs()[self._outputs[name]].numpy()
        return values

    def run(self, why: str = "") -> None:
        """`why` is for devices: the reason for which the run is not captured."""
        self._runs.run(self._session, self._binding, self._run_options)

    def _bind_input(self, name: str, value: Any) -> None:
        self._binding.bind_ortvalue_input(name, value)
        self._changes += 1

    def _bind_output(self, name: str, value: Any) -> None:
        self._binding.bind_ortvalue_output(name, value)
        self._changes += 1
        self._note(name)

    def _note(self, output: str) -> None:
        """ONNX Runtime lists outputs in the order in which they were first bound."""
        self._outputs.setdefault(output, len(self._outputs))

    def _keep_made(self, name: str, shape: tuple[int, ...], kind: Any) -> NDArray[Any]:
        """An array of this shape, the same one as before: rounds come back to a few widths."""
        made = self._made.get((name, shape))
        if made is None:
            array = np.empty(shape, dtype=kind)
            self._keep(name, array)
            if array.nbytes <= _SMALL_BYTES:
                if len(self._made) == _MOST_MADE:
                    self._made.clear()  # prompts have had many lengths; widths of rounds come again
                self._made[name, shape] = (array, self._kept[name])
            return array
        self._arrays[name], self._kept[name] = made
        return made[0]

    def _keep(self, name: str, array: NDArray[Any]) -> None:
        self._arrays[name] = array
        self._kept[name] = self._ort.OrtValue.ortvalue_from_numpy(array)
