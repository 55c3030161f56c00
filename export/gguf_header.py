"""The architecture named in the header of a GGUF file, without reading its vocabulary."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import BinaryIO

from models.errors import UserError

_MAGIC = b"GGUF"
_KEY = "general.architecture"
_STRING, _ARRAY = 8, 9
# Bytes of each scalar type, by its number in the format.
_SCALARS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_LONGEST_STRING = 1 << 20


def read_architecture(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return _find(stream)
    except (struct.error, ValueError) as error:
        raise UserError(
            f"{path} is not a readable GGUF file ({error}).",
            code="source_unreadable",
            param="--target",
        ) from error


def _find(stream: BinaryIO) -> str:
    if stream.read(4) != _MAGIC:
        raise ValueError("it does not begin with GGUF")
    _version, _tensors, pairs = _unpack(stream, "<IQQ")
    for _ in range(pairs):
        key = _string(stream)
        (kind,) = _unpack(stream, "<I")
        if key == _KEY and kind == _STRING:
            return _string(stream)
        _skip(stream, kind)
    raise ValueError(f"it does not name its {_KEY}")


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
    return stream.read(length).decode("utf-8", "replace")


def _unpack(stream: BinaryIO, form: str) -> tuple[int, ...]:
    return struct.unpack(form, stream.read(struct.calcsize(form)))
