"""The whole rows of logits of the last run, in one buffer that all bindings share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.errors import DeviceError
from models.providers import Provider, load_onnxruntime
from models.session import Binding

LOGITS = "logits"
_LEAST_ROWS = 64


class Workspace:
    """Where the graphs write `logits` [M, V] float32, on the device that they run on.

    Every run overwrites it, so that its rows can be read until the next run only: `runs` counts.
    On a device the first `least` rows stay where they are, since captured runs know their address;
    where more are wanted there is a second buffer.
    """

    def __init__(self, vocab_size: int, provider: Provider, least: int = _LEAST_ROWS) -> None:
        self.vocab_size = vocab_size
        self._provider = provider
        self._narrow = self._wide = self._made(max(least, _LEAST_ROWS))
        self._last: Binding | None = None
        self._host: NDArray[np.float32] | None = None
        self.runs = 0

    def bind(self, binding: Binding, rows: int) -> None:
        """Have the next run, which is `binding`'s, write its `rows` rows here."""
        buffer = self._narrow if rows <= self._narrow.rows else self._wide
        if rows > buffer.rows:
            buffer = self._wide = self._made(max(rows, 2 * buffer.rows))
            if self._provider.on_host:
                self._narrow = buffer
        shape = (rows, self.vocab_size)
        binding.collect_at(LOGITS, self._provider.memory, buffer.address, shape, np.float32)
        self.runs += 1
        self._last = binding
        self._host = buffer.memory[:rows] if self._provider.on_host else None

    def window(self, start: int) -> Window:
        """The rows of the last run from `start` on."""
        return Window(self, self.runs, start)

    def rows(self) -> NDArray[np.float32]:
        """[M, V] of the last run, on the host: copied from a device when first asked for.

        Raises `DeviceError`."""
        assert self._last is not None, "there was a run"
        if self._host is None:
            self._host = self._fetched(self._last)
        return self._host

    @staticmethod
    def _fetched(binding: Binding) -> NDArray[np.float32]:
        """Raises `DeviceError`: behind a run that went well the device may still be lost."""
        try:
            return binding.copy_of(LOGITS)
        except Exception as error:
            raise DeviceError(str(error) or type(error).__name__) from error

    def _made(self, rows: int) -> _Buffer:
        shape = (rows, self.vocab_size)
        if self._provider.on_host:
            array = np.empty(shape, dtype=np.float32)
            return _Buffer(array, rows, array.ctypes.data)
        ort = load_onnxruntime()
        value = ort.OrtValue.ortvalue_from_shape_and_type(
            shape, np.float32, self._provider.memory, 0
        )
        return _Buffer(value, rows, value.data_ptr())


@dataclass(frozen=True, slots=True)
class _Buffer:
    memory: Any
    rows: int
    address: int


@dataclass(slots=True, eq=False)
class Window:
    """The rows of one row's wanted tokens, until the next run."""

    workspace: Workspace
    run: int
    start: int

    @property
    def vocab_size(self) -> int:
        return self.workspace.vocab_size

    def whole(self, index: int) -> NDArray[np.float32]:
        """[V]: a view, to be read before the target runs again."""
        assert self.run == self.workspace.runs, "whole rows are gone with the next run"
        row: NDArray[np.float32] = self.workspace.rows()[self.start + index]
        return row
