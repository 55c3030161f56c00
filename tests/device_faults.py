"""A device that fails as ONNX Runtime's do: what it raises, where, and from which run on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnxruntime
import pytest
from onnxruntime.capi import onnxruntime_pybind11_state as errors

PATIENCE = 30.0

OUT_OF_MEMORY = (
    "[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : Non-zero status code returned while running"
    " MatMul node. Failed to allocate memory for requested buffer of size 1073741824"
)
INVALID_GRAPH = (
    "[ONNXRuntimeError] : 10 : INVALID_GRAPH : This is an invalid model. In Node, MatMul is not a"
    " registered function/op"
)
LOST = (
    "[ONNXRuntimeError] : 11 : EP_FAIL : CUDA failure 700: an illegal memory access was encountered"
)
FAILURES: dict[str, Exception] = {
    "out of memory": errors.RuntimeException(OUT_OF_MEMORY),
    "invalid graph": errors.InvalidGraph(INVALID_GRAPH),
    "lost device": errors.EPFail(LOST),
}
SECRETS = ("ONNXRuntimeError", "MatMul", "CUDA", ".onnx")
"""What the operator is to know of the device's messages, and clients are not."""

Where = Callable[[str], bool]
"""Whether a graph, by its file's name, is meant."""


class Faults:
    """While it is armed, graphs that are meant fail when they are run, or loaded; or they hang
    until ONNX Runtime is told to leave the run. `struck` are their names."""

    def __init__(self) -> None:
        self.struck: list[str] = []
        self.hanging = threading.Event()
        self._where: Where | None = None
        self._error: Exception | None = None
        self._loading = False
        self._left = 0

    def arm(
        self, where: Where, error: Exception | None, *, after: int = 0, loading: bool = False
    ) -> None:
        """`error` None: it hangs. `after` so many runs, or loads, of these graphs went well."""
        self._error, self._left, self._loading = error, after, loading
        self._where = where

    def disarm(self) -> None:
        self._where = None

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        session = onnxruntime.InferenceSession
        load, run = session.__init__, session.run_with_iobinding

        def loading(self_: Any, graph: Any, *rest: Any, **options: Any) -> None:
            if self._loading and self._strikes(Path(str(graph)).name):
                assert self._error is not None, "a load that hangs is nobody's run"
                raise self._error
            load(self_, graph, *rest, **options)

        def running(self_: Any, binding: Any, options: Any) -> None:
            if not self._loading and self._strikes(Path(self_._model_path).name):
                if self._error is not None:
                    raise self._error
                self._hang(options)
            run(self_, binding, options)

        monkeypatch.setattr(session, "__init__", loading)
        monkeypatch.setattr(session, "run_with_iobinding", running)

    def _strikes(self, name: str) -> bool:
        if self._where is None or not self._where(name):
            return False
        self._left -= 1
        if self._left >= 0:
            return False
        self.struck.append(name)
        return True

    def _hang(self, options: Any) -> None:
        end = time.monotonic() + PATIENCE
        while self._where is not None and not options.terminate and time.monotonic() < end:
            self.hanging.set()
            time.sleep(0.001)  # a kernel that takes long
