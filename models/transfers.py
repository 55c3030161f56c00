"""Many small arrays as one piece of a device's memory, which one copy moves.

A copy to or from a device is a call and a wait, however little it moves, and a round's runs have a
dozen small inputs and outputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.buffers import place
from models.providers import Provider

_ALIGNMENT = 256
"""As CUDA's own allocations have it at least."""


class Piece:
    """Arrays that lie together. `arrays` are views of its copy on the host, `addresses` where each
    begins on the device; both by name."""

    def __init__(self, like: Mapping[str, NDArray[Any]], provider: Provider) -> None:
        begins, size = _places(like)
        self._host = np.zeros(size, dtype=np.uint8)
        self._value = place(self._host, provider)
        address = int(self._value.data_ptr())
        self.arrays: dict[str, NDArray[Any]] = {}
        self.addresses: dict[str, int] = {}
        for (name, array), begin in zip(like.items(), begins, strict=True):
            part = self._host[begin : begin + array.nbytes]
            self.arrays[name] = part.view(array.dtype).reshape(array.shape)
            self.addresses[name] = address + begin

    def send(self) -> None:
        """What the host has."""
        self._value.update_inplace(self._host)

    def fetch(self) -> None:
        """What the device has."""
        self._host[...] = self._value.numpy()


def _places(like: Mapping[str, NDArray[Any]]) -> tuple[Sequence[int], int]:
    begins, end = [], 0
    for array in like.values():
        begins.append(end)
        end += -(-max(1, array.nbytes) // _ALIGNMENT) * _ALIGNMENT
    return begins, max(end, _ALIGNMENT)
