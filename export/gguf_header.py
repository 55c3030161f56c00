"""What the header of a GGUF file says: its architecture, and how long the file should be."""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import BinaryIO

from models.errors import UserError

_MAGIC = b"GGUF"
_KEY = "general.architecture"
_ALIGNMENT_KEY, _ALIGNMENT = "general.alignment", 32
_STRING, _ARRAY, _UINT32 = 8, 9, 4
# Bytes of each scalar type, by its number in the format.
_SCALARS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_LONGEST_STRING = 1 << 20


def read_architecture(path: Path) -> str:
    """The architecture's name. Raises `UserError` where the file ends before its tensors do."""
    try:
        with path.open("rb") as stream:
            return _read(stream, path.stat().st_size)
    except ValueError as error:
        raise UserError(
            f"{path} is not a readable GGUF file ({error}).",
            code="source_unreadable",
            param="--target",
        ) from error


def _read(stream: BinaryIO, size: int) -> str:
    if stream.read(4) != _MAGIC:
        raise ValueError("it does not begin with GGUF")
    _version, tensors, pairs = _unpack(stream, "<IQQ")
    name, alignment = None, _ALIGNMENT
    for _ in range(pairs):
        key = _string(stream)
        (kind,) = _unpack(stream, "<I")
        if (key, kind) == (_KEY, _STRING):
            name = _string(stream)
        elif (key, kind) == (_ALIGNMENT_KEY, _UINT32):
            (alignment,) = _unpack(stream, "<I")
        else:
            _skip(stream, kind)
    if name is None:
        raise ValueError(f"it does not name its {_KEY}")
    ends = [_tensor_end(stream) for _ in range(tensors)]
    begin = -(-stream.tell() // max(alignment, 1)) * max(alignment, 1)
    expected = begin + max(ends, default=0)
    if ends and size < expected:
        raise ValueError(f"it is truncated: {size} bytes of {expected}")
    return name


def _tensor_end(stream: BinaryIO) -> int:
    """Where the next tensor of the list ends, from the beginning of the tensors' data."""
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    name = _string(stream)
    (dimensions,) = _unpack(stream, "<I")
    shape = _unpack(stream, f"<{min(dimensions, 8)}Q")
    kind, offset = _unpack(stream, "<IQ")
    try:
        block, block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType(kind)]
    except (ValueError, KeyError):
        raise ValueError(f"its tensor {name} has the unknown type {kind}") from None
    return offset + math.prod(shape) // block * block_bytes


def _skip(stream: BinaryIO, kind: int) -> None:
    if kind == _STRING:
        _string(stream)
    elif kind == _ARRAY:
        element, count = _unpack(stream, "<IQ")
        for _ in range(count):
            _skip(stream, element)
    elif kind in _SCALARS:
        stream.seek(_SCALARS[kind], 1)
    else:
        raise ValueError(f"it holds a value of unknown type {kind}")


def _string(stream: BinaryIO) -> str:
    (length,) = _unpack(stream, "<Q")
    if length > _LONGEST_STRING:
        raise ValueError("it holds an endless string")
    return _exactly(stream, length).decode("utf-8", "replace")


def _unpack(stream: BinaryIO, form: str) -> tuple[int, ...]:
    return struct.unpack(form, _exactly(stream, struct.calcsize(form)))


def _exactly(stream: BinaryIO, count: int) -> bytes:
    content = stream.read(count)
    if len(content) < count:
        raise ValueError("it is truncated: it ends within its header")
    return content
