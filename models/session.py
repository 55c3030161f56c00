"""ONNX Runtime sessions with bindings that are kept between runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.buffers import TokenRows
from models.errors import UserError
from models.processor import processor_count
from models.providers import Provider, load_onnxruntime

_pools: dict[str, int] = {}


def share_threads(threads: int | None) -> int:
    """Make all sessions of this process share one pool of `threads` (None: every processor).

    Sessions with pools of their own spin against each other on the same cores. ONNX Runtime
    fixes the pool when its environment is made, so the first call of a process decides; returns
    the number in force.
    """
    if "intra" not in _pools:
        wanted = threads or processor_count()
        load_onnxruntime().set_global_thread_pool_sizes(wanted, 1)
        _pools["intra"] = wanted
    return _pools["intra"]


class Session:
    """One graph on one provider. Must be run from one thread at a time."""

    def __init__(self, graph: Path, provider: Provider, threads: int | None = None) -> None:
        ort = load_onnxruntime()
        share_threads(threads)
        options = ort.SessionOptions()
        options.use_per_session_threads = False
        options.log_severity_level = 3
        try:
            self._session = ort.InferenceSession(
                str(graph), options, providers=provider.session_providers()
            )
        except Exception as error:
            raise UserError(
                f"ONNX Runtime cannot load {graph.name} on {provider.device}: {error}",
                code="graph_invalid",
                param=graph.name,
            ) from error
        self._require_provider(provider, graph)

    def _require_provider(self, provider: Provider, graph: Path) -> None:
        got = self._session.get_providers()
        if got[0] != provider.onnxruntime_names[0]:
            raise UserError(
                f"{graph.name} was to run on {provider.onnxruntime_names[0]} but ONNX Runtime"
                f" took {got[0]}; its log says which library is missing.",
                code="provider_unavailable",
                param="device",
            )

    @property
    def input_names(self) -> list[str]:
        return [value.name for value in self._session.get_inputs()]

    @property
    def output_names(self) -> list[str]:
        return [value.name for value in self._session.get_outputs()]

    def binding(self) -> Binding:
        return Binding(self._session)


class Binding:
    """An IOBinding whose small inputs and outputs are rebound only when their shape changes.

    Host arrays are bound without a copy: writing into the array returned by `array` is all that a
    further run of the same shape needs.
    """

    def __init__(self, session: Any) -> None:
        self._session = session
        self._binding = session.io_binding()
        self._ort = load_onnxruntime()
        self._arrays: dict[str, NDArray[Any]] = {}
        self._kept: dict[str, Any] = {}
        self._placed: dict[str, tuple[int, tuple[int, ...]]] = {}
        self._outputs: dict[str, int] = {}

    def bind_in_place(self, source: str, result: str, value: Any) -> None:
        """Bind one OrtValue as the input `source` and the output `result`."""
        self._binding.bind_ortvalue_input(source, value)
        self.bind_result(result, value)

    def bind_result(self, name: str, value: Any) -> None:
        """Have output `name` written to this OrtValue."""
        self._binding.bind_ortvalue_output(name, value)
        self._note(name)

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
            array = np.empty(values.shape, dtype=values.dtype)
            self._keep(name, array)
            self._binding.bind_ortvalue_input(name, self._kept[name])
        array[...] = values

    def collect(self, name: str, shape: tuple[int, ...], kind: type[np.generic]) -> NDArray[Any]:
        """The host array that output `name` is written to; valid until the next run."""
        array = self._arrays.get(name)
        if array is None or array.shape != shape:
            array = np.empty(shape, dtype=kind)
            self._keep(name, array)
            self._binding.bind_ortvalue_output(name, self._kept[name])
            self._note(name)
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
            self._placed[name] = (address, shape)
            self._note(name)

    def collect_rows(self, name: str, rows: TokenRows, start: int, count: int) -> None:
        """Have output `name` [count, F] written to `rows` from `start` on."""
        self.collect_at(name, rows.memory, rows.at(start), (count, rows.width), rows.kind)

    def feed_rows(self, name: str, rows: TokenRows, start: int, count: int) -> None:
        """Have input `name` [count, F] read from `rows` from `start` on."""
        place = (rows.at(start), (count, rows.width))
        if self._placed.get(name) != place:
            address, shape = place
            self._binding.bind_input(name, rows.memory, 0, rows.kind, list(shape), address)
            self._placed[name] = place

    def lend(self, name: str, values: NDArray[Any]) -> None:
        """Have input `name` read `values` themselves, which the caller keeps and may change."""
        if self._arrays.get(name) is not values:
            self._keep(name, values)
            self._binding.bind_ortvalue_input(name, self._kept[name])

    def borrow(self, name: str, values: NDArray[Any]) -> None:
        """Have output `name` written to `values`, which the caller keeps."""
        self._keep(name, values)
        self.bind_result(name, self._kept[name])

    def hold(self, name: str, value: Any) -> None:
        """Have input `name` read this OrtValue."""
        if self._kept.get(name) is not value:
            self._kept[name] = value
            self._binding.bind_ortvalue_input(name, value)

    def copy_of(self, name: str) -> NDArray[Any]:
        """What the last run wrote to output `name`, wherever it lies, as a host array."""
        values: NDArray[Any] = self._binding.get_outputs()[self._outputs[name]].numpy()
        return values

    def run(self) -> None:
        self._session.run_with_iobinding(self._binding)

    def _note(self, output: str) -> None:
        """ONNX Runtime lists outputs in the order in which they were first bound."""
        self._outputs.setdefault(output, len(self._outputs))

    def _keep(self, name: str, array: NDArray[Any]) -> None:
        self._arrays[name] = array
        self._kept[name] = self._ort.OrtValue.ortvalue_from_numpy(array)
