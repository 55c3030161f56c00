"""Large arrays on huge pages, and which mappings are meant."""

from __future__ import annotations

import ctypes
import mmap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from models import huge_pages
from models.huge_pages import HUGE, collapse, mappings

MAPS = """\
55d000000000-55d000200000 r--p 00000000 fe:01 131                        /usr/bin/python3
7f0000000000-7f0004000000 rw-p 00000000 00:00 0
7f1000000000-7f1004000000 rw-p 00000000 fe:01 131                        /models/weights
7f2000000000-7f2004000000 ---p 00000000 00:00 0
7f3000000000-7f3000010000 rw-p 00000000 00:00 0                          [heap]
"""


def test_private_memory_without_a_file_is_meant() -> None:
    assert list(mappings(MAPS)) == [
        (0x7F0000000000, 0x7F0004000000),
        (0x7F3000000000, 0x7F3000010000),
    ]


def anonymous(bytes_: int) -> NDArray[Any]:
    """An array over memory that was never written."""
    memory = mmap.mmap(-1, bytes_, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return np.frombuffer(memory, dtype=np.int64)


def resident_bytes(array: NDArray[Any]) -> int:
    """Of this array alone, in memory or swapped: what else the process has is none of its."""
    first, count = array.ctypes.data // mmap.PAGESIZE, array.nbytes // mmap.PAGESIZE
    with Path("/proc/self/pagemap").open("rb") as pagemap:
        pagemap.seek(first * 8)
        entries = np.frombuffer(pagemap.read(count * 8), dtype=np.uint64)
    return int(np.count_nonzero(entries >> np.uint64(62))) * mmap.PAGESIZE


def kernel_grants_huge_pages() -> bool:
    asked = anonymous(2 * HUGE)
    asked[:] = 1
    libc = ctypes.CDLL(None)
    libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return bool(libc.madvise(-(-asked.ctypes.data // HUGE) * HUGE, HUGE, 25) == 0)


def test_what_is_written_moves_and_keeps_its_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a busy machine the kernel may refuse some: every page is asked for, and what it grants is
    what is counted. (Other arrays come and go meanwhile.)"""
    granted: dict[int, bool] = {}
    move = huge_pages._move

    def watched(libc: ctypes.CDLL, start: int, length: int) -> bool:
        assert length == HUGE
        granted[start] = move(libc, start, length)
        return granted[start]

    monkeypatch.setattr(huge_pages, "_move", watched)
    written = anonymous(32 * HUGE)
    written[:] = np.arange(written.size)
    total = written.sum()
    moved = collapse()
    address = written.ctypes.data
    own = range(-(-address // HUGE) * HUGE, address + written.nbytes - HUGE + 1, HUGE)
    assert len(own) >= 31
    assert granted.keys() >= set(own)
    assert moved == HUGE * sum(granted.values())
    assert any(granted[page] for page in own) or not kernel_grants_huge_pages()
    assert written.sum() == total


def test_what_is_not_written_takes_no_memory() -> None:
    written, unwritten = anonymous(32 * HUGE), anonymous(64 * HUGE)
    written[:] = 1
    collapse()
    assert resident_bytes(unwritten) == 0
    assert resident_bytes(written) == written.nbytes
    unwritten[: 8 * HUGE // 8] = 1
    collapse()
    assert 8 * HUGE <= resident_bytes(unwritten) <= 10 * HUGE


def test_where_nothing_is_told_nothing_happens(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(huge_pages, "_MAPS", tmp_path / "none")
    assert collapse() == 0
