"""What several processes of tests keep together."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """One process at a time: those that start together must not make the same thing twice."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
