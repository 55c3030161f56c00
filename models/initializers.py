"""The weights of graphs, placed on a device once and shared by all sessions that read them.

A session loads its own copy of the weights, so that a target with graphs for 1, 2 and 4 rows would
be in a GPU's memory three times. Which tensors a graph has, and where in which file their bytes
lie, is read from the graph itself: protocol buffers, of which few fields are needed (onnx.proto:
ModelProto.graph = 7, GraphProto.initializer = 5, TensorProto.dims = 1, data_type = 2, name = 8,
external_data = 13 with key = 1 and value = 2).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.buffers import place
from models.providers import Provider

_GRAPH, _INITIALIZER = 7, 5
_DIMS, _DATA_TYPE, _NAME, _EXTERNAL = 1, 2, 8, 13
_KEY, _VALUE = 1, 2
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

# As ONNX numbers element types; those of 16 bits that numpy has no type for are not shared.
_TYPES: dict[int, type[np.generic]] = {
    1: np.float32,
    2: np.uint8,
    3: np.int8,
    6: np.int32,
    7: np.int64,
    10: np.float16,
}


@dataclass(frozen=True, slots=True)
class ExternalTensor:
    """An initializer whose bytes lie in a file."""

    name: str
    kind: type[np.generic]
    shape: tuple[int, ...]
    location: str
    offset: int

    def read(self, directory: Path) -> NDArray[Any]:
        """Mapped, not read: pages come when they are copied."""
        return np.memmap(
            directory / self.location,
            dtype=self.kind,
            mode="r",
            offset=self.offset,
            shape=self.shape,
        )


def external_tensors(graph: Path) -> list[ExternalTensor]:
    """Those of the graph in this file whose element type numpy has."""
    with graph.open("rb") as stream:
        content = memoryview(stream.read())
    found = []
    for number, body in _fields(content):
        if number == _GRAPH:
            for inner, tensor in _fields(_bytes(body)):
                if inner == _INITIALIZER and (known := _tensor(_bytes(tensor))) is not None:
                    found.append(known)
    return found


class SharedWeights:
    """Tensors on one device by the file and the place that they come from. For any thread."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider
        self._placed: dict[tuple[str, int, tuple[int, ...]], Any] = {}
        self._placing = threading.Lock()
        self.bytes = 0
        """On the device."""

    def of(self, graph: Path) -> dict[str, Any]:
        """The graph's initializers as OrtValues, by their names."""
        with self._placing:
            return {each.name: self._value(each, graph.parent) for each in external_tensors(graph)}

    def _value(self, tensor: ExternalTensor, directory: Path) -> Any:
        key = (str(directory / tensor.location), tensor.offset, tensor.shape)
        value = self._placed.get(key)
        if value is None:
            values = tensor.read(directory)
            value = self._placed[key] = place(values, self._provider)
            self.bytes += values.nbytes
        return value


def _tensor(content: memoryview) -> ExternalTensor | None:
    dims: list[int] = []
    kind, name, entries = 0, "", dict[str, str]()
    for number, value in _fields(content):
        if number == _DIMS:
            dims += [value] if isinstance(value, int) else _varints(value)
        elif number == _DATA_TYPE and isinstance(value, int):
            kind = value
        elif number == _NAME:
            name = bytes(_bytes(value)).decode()
        elif number == _EXTERNAL:
            pair = {key: bytes(_bytes(part)).decode() for key, part in _fields(_bytes(value))}
            entries[pair[_KEY]] = pair[_VALUE]
    if "location" not in entries or kind not in _TYPES:
        return None
    offset = int(entries.get("offset", "0"))
    return ExternalTensor(name, _TYPES[kind], tuple(dims), entries["location"], offset)


def _fields(content: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """(field number, value) of a message; numbers of a fixed width are skipped."""
    at = 0
    while at < len(content):
        tag, at = _varint(content, at)
        kind = tag & 7
        if kind == _VARINT:
            value, at = _varint(content, at)
            yield tag >> 3, value
        elif kind == _BYTES:
            size, at = _varint(content, at)
            yield tag >> 3, content[at : at + size]
            at += size
        else:
            assert kind in (_FIXED32, _FIXED64), "no group in a graph"
            at += 4 if kind == _FIXED32 else 8


def _varints(content: memoryview) -> list[int]:
    values, at = [], 0
    while at < len(content):
        value, at = _varint(content, at)
        values.append(value)
    return values


def _varint(content: memoryview, at: int) -> tuple[int, int]:
    value, shift = 0, 0
    while True:
        byte = content[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def _bytes(value: int | memoryview) -> memoryview:
    assert isinstance(value, memoryview), "a message or a text"
    return value
