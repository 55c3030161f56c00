"""One user's texts on disk: a header that names the owner, then a record a text.

A record is the number of tokens, a CRC-32 of that and of the tokens, and the tokens, all as
little-endian 32-bit integers. Records are appended; a record that was cut off or altered ends what
is read.
"""

from __future__ import annotations

import contextlib
import os
import struct
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

MAGIC = b"outpace ngrams 1\n"
UNFINISHED = ".new"
"""The suffix of a file while it is written anew."""

_HEAD = struct.Struct("<II")


def read_texts(path: Path, owner: str) -> tuple[list[tuple[int, ...]], int]:
    """The texts of `owner`, oldest first, and how many bytes of the file they are.

    A file of another owner or of another kind holds none, and 0 bytes of it are worth keeping.
    """
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return [], 0
    header = _header(owner)
    if not raw.startswith(header):
        return [], 0
    texts, at = list[tuple[int, ...]](), len(header)
    while (found := _record(raw, at)) is not None:
        text, at = found
        texts.append(text)
    return texts, at


def append_text(path: Path, owner: str, text: Sequence[int], valid: int) -> int:
    """Put a text behind the first `valid` bytes, whatever is there; returns how many there are
    then. With 0 of them, or where there are not so many, the file is begun anew."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    with os.fdopen(descriptor, "r+b") as file:
        if os.fstat(descriptor).st_size < valid:
            valid = 0
        file.truncate(valid)
        file.seek(valid)
        if valid == 0:
            file.write(_header(owner))
        file.write(_written(text))
        return file.tell()


def rewrite_texts(path: Path, owner: str, texts: Iterable[Sequence[int]]) -> int:
    """Have the file hold these texts alone, or what it held where that fails; returns its size."""
    beside = path.with_suffix(UNFINISHED)
    try:
        return _write_beside(path, beside, owner, texts)
    except BaseException:
        # On a full disk it would only take the room that is missing.
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        raise


def _write_beside(path: Path, beside: Path, owner: str, texts: Iterable[Sequence[int]]) -> int:
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(_header(owner))
        for text in texts:
            file.write(_written(text))
        size = file.tell()
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    return size


def _header(owner: str) -> bytes:
    return MAGIC + owner.encode() + b"\n"


def _written(text: Sequence[int]) -> bytes:
    tokens = np.asarray(text, dtype="<i4").tobytes()
    return _HEAD.pack(len(text), _checksum(len(text), tokens)) + tokens


def _record(raw: bytes, at: int) -> tuple[tuple[int, ...], int] | None:
    """The text of the record at `at`, and where it ends."""
    begin = at + _HEAD.size
    if begin > len(raw):
        return None
    count, checksum = _HEAD.unpack_from(raw, at)
    end = begin + 4 * count
    if count == 0 or end > len(raw) or _checksum(count, raw[begin:end]) != checksum:
        return None
    return tuple(np.frombuffer(raw, "<i4", count, begin).tolist()), end


def _checksum(count: int, tokens: bytes) -> int:
    return zlib.crc32(tokens, count)
