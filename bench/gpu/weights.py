"""Random weights, written to a file as they are made: a large model is never whole in memory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from export.writer import ALIGNMENT, INLINE_BYTES
from models.buffers import FloatType

BLOCK = 32
"""Weights of a row that share a scale, in 8 and 4 bits."""

_POOL = 1 << 22
_STEP = 7919


class Weights:
    """Makes initializers whose bytes go to `path`. Use as a context.

    Values come from one pool of normal numbers, each tensor from another place in it: making
    billions of them would take minutes and tell nothing.
    """

    def __init__(self, path: Path, kind: str, seed: int) -> None:
        self.kind = kind
        """`fp32` or `fp16` where nothing is quantised, else `int8` or `int4` on fp16."""
        self.tensors: list[TensorProto] = []
        random = np.random.default_rng(seed)
        self._normal = random.standard_normal(_POOL, dtype=np.float32)
        self._bytes = random.integers(0, 256, _POOL, dtype=np.uint8)
        self._at = 0
        self._path = path
        self._stream: BinaryIO = path.open("wb")

    def __enter__(self) -> Weights:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    @property
    def half(self) -> bool:
        """Whether activations are in half precision."""
        return self.kind != "fp32"

    @property
    def float_type(self) -> FloatType:
        return np.float16 if self.half else np.float32

    def constant(self, name: str, values: NDArray[np.generic]) -> str:
        """These values, in the type of activations where they are of some."""
        if values.dtype == np.float32:
            values = values.astype(self.float_type)
        self._write(name, np.asarray(values, order="C"))
        return name

    def normal(self, name: str, shape: Sequence[int], scale: float) -> str:
        """Normal numbers of this standard deviation."""
        size = int(np.prod(shape))
        pool = (self._normal * np.float32(scale)).astype(self.float_type)
        kind = TensorProto.FLOAT16 if self.half else TensorProto.FLOAT
        self._reference(name, kind, shape, size * pool.itemsize)
        self._repeat(pool, size)
        return name

    def linear(self, name: str, inputs: int, outputs: int, gain: float) -> list[str]:
        """The weights of a product: one [inputs, outputs], or 8 or 4 bits of it and their scales.

        An input of variance 1 gives an output of standard deviation `gain`.
        """
        scale = gain / np.sqrt(inputs)
        if self.kind in ("fp32", "fp16"):
            return [self.normal(name, (inputs, outputs), scale)]
        bits = 8 if self.kind == "int8" else 4
        blocks = -(-inputs // BLOCK)
        size = outputs * blocks * BLOCK * bits // 8
        packed = (outputs, blocks, BLOCK * bits // 8)
        self._reference(f"{name}.q", TensorProto.UINT8, packed, size)
        self._repeat(self._bytes, size)
        # Integers spread evenly around their zero point, 2^(bits - 1).
        spread = (1 << bits) / np.sqrt(12)
        flat = np.full(_POOL, scale / spread, dtype=self.float_type)
        kind = TensorProto.FLOAT16
        self._reference(f"{name}.s", kind, (outputs * blocks,), outputs * blocks * flat.itemsize)
        self._repeat(flat, outputs * blocks)
        return [f"{name}.q", f"{name}.s"]

    def _repeat(self, pool: NDArray[np.generic], size: int) -> None:
        """`size` values from the pool, from another place than last time."""
        self._at = (self._at + _STEP) % _POOL
        view = memoryview(np.roll(pool, self._at).tobytes())
        left = size * pool.itemsize
        while left > 0:
            self._stream.write(view[: min(left, len(view))])
            left -= len(view)

    def _write(self, name: str, values: NDArray[np.generic]) -> None:
        if values.nbytes <= INLINE_BYTES:
            self.tensors.append(numpy_helper.from_array(values, name))
            return
        kind = int(helper.np_dtype_to_tensor_dtype(values.dtype))
        self._reference(name, kind, values.shape, values.nbytes)
        self._stream.write(values.tobytes())

    def _reference(self, name: str, kind: int, shape: Sequence[int], length: int) -> None:
        self._stream.write(b"\0" * (-self._stream.tell() % ALIGNMENT))
        tensor = onnx.TensorProto(
            name=name, data_type=kind, dims=shape, data_location=TensorProto.EXTERNAL
        )
        place = {"location": self._path.name, "offset": self._stream.tell(), "length": length}
        for key, value in place.items():
            tensor.external_data.add(key=key, value=str(value))
        self.tensors.append(tensor)
