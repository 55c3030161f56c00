"""Weights on huge pages (Linux): a run reads all of them, and address translation costs time."""

from __future__ import annotations

import ctypes
import mmap
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

HUGE = 2 << 20
"""Bytes of a huge page where base pages have 4 KiB."""

_MAPS, _PAGEMAP = Path("/proc/self/maps"), Path("/proc/self/pagemap")
_ENTRY_BYTES = 8
_PRESENT = np.uint64(1 << 63)

_MADV_COLLAPSE = 25
_LEAST_BYTES = 4 * HUGE
"""Smaller mappings are stacks and small arenas."""

_PRIVATE = re.compile(r"([0-9a-f]+)-([0-9a-f]+) rw-p \S+ \S+ 0\s")


def collapse() -> int:
    """Move what lies in large private mappings onto huge pages; the bytes that were moved, or lay
    there before.

    To be called when weights are loaded. Only huge pages that are half there at least are made: one
    under a buffer that is not written yet would take memory that may never be needed. Does nothing
    where there is no `madvise(MADV_COLLAPSE)` (Linux before 6.1, other systems).
    """
    if not sys.platform.startswith("linux") or mmap.PAGESIZE != 4096:
        return 0
    libc = ctypes.CDLL(None)
    libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    try:
        return sum(length for start, length in _populated() if _move(libc, start, length))
    except OSError:
        return 0


def _move(libc: ctypes.CDLL, start: int, length: int) -> bool:
    """Whether the kernel did it. A refusal is no error: those pages stay as they are."""
    return bool(libc.madvise(start, length, _MADV_COLLAPSE) == 0)


def _populated() -> Iterator[tuple[int, int]]:
    """Address and length of what could be huge pages and is mostly there."""
    with _PAGEMAP.open("rb") as pagemap:  # buffered: a bare read may be cut short by a signal
        for start, end in mappings(_MAPS.read_text(encoding="utf-8", errors="replace")):
            first, last = -(-start // HUGE), end // HUGE
            if end - start < _LEAST_BYTES:
                continue
            pagemap.seek(first * HUGE // mmap.PAGESIZE * _ENTRY_BYTES)
            entries = pagemap.read((last - first) * HUGE // mmap.PAGESIZE * _ENTRY_BYTES)
            present = (np.frombuffer(entries, dtype=np.uint64) & _PRESENT) != 0
            pages = present.reshape(last - first, -1).mean(axis=1) >= 0.5
            for page in np.flatnonzero(pages).tolist():
                yield (first + page) * HUGE, HUGE


def mappings(maps: str) -> Iterator[tuple[int, int]]:
    """Start and end of the private, writable mappings without a file, of a text as proc_pid_maps(5)
    describes it."""
    for line in maps.splitlines(keepends=True):
        found = _PRIVATE.match(line)
        if found is not None:
            yield int(found[1], 16), int(found[2], 16)
