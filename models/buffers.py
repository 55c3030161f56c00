"""Buffers that outlive a run: allocated once on the device where the graphs run."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.providers import Provider, load_onnxruntime

FloatType = type[np.floating[Any]]

KV_TYPES: dict[str, FloatType] = {"fp32": np.float32, "fp16": np.float16}

# As ONNX numbers element types (TensorProto.DataType).
_ELEMENT_TYPES: dict[int, FloatType] = {1: np.float32, 10: np.float16}


def allocate(shape: tuple[int, ...], kind: FloatType, provider: Provider) -> Any:
    """An OrtValue of zeros on the provider's device.

    What a kernel reads of a buffer beyond what was written must be finite: it is multiplied by 0.
    """
    return place(np.zeros(shape, dtype=kind), provider)


def place(values: NDArray[Any], provider: Provider) -> Any:
    """An OrtValue of these values on the provider's device; on the host it is `values` itself."""
    make = load_onnxruntime().OrtValue.ortvalue_from_numpy
    # A device whose memory is played by the host's has its own copy too, as a real one.
    own = values if provider.on_host or provider.memory != "cpu" else values.copy()
    return make(own, provider.memory, 0)


class TokenRows:
    """A view of an OrtValue [capacity, F], a row a token, that is handed to graphs in parts."""

    __slots__ = ("_address", "_row_bytes", "kind", "memory", "value", "width")

    def __init__(self, value: Any) -> None:
        _, width = value.shape()
        self.value = value
        self.width = int(width)
        self.memory: str = value.device_name()
        self.kind = _ELEMENT_TYPES[value.element_type()]
        self._row_bytes = self.width * np.dtype(self.kind).itemsize
        self._address = int(value.data_ptr())

    def at(self, row: int) -> int:
        """The address where `row` begins."""
        return self._address + row * self._row_bytes
