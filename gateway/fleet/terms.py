"""What the packages of a gateway are kept by."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from models.memory import MemoryNeed
from models.package import Manifest

FOREVER = -1.0
"""A `keep_alive` without end."""


@dataclass(frozen=True, slots=True)
class Terms:
    """Seconds, unless it says otherwise.

    A package that nobody used for `keep_alive` is unloaded (negative: never). A request waits up to
    `load_seconds` for its package, `queue` of them at most. Answers on an engine that failed may
    go on for `drain_seconds`. A run of more than `stuck_seconds` (None: no run) is stuck; after
    `stuck_exit_seconds` more the gateway has to end. `failures` within `failure_window` are too
    many; before a further attempt there is a pause of `first_pause`, twice that, and so on. Without
    `check_memory` a package is loaded whether or not it seems to fit.
    """

    keep_alive: float = FOREVER
    load_seconds: float = 300.0
    queue: int = 64
    drain_seconds: float = 20.0
    stuck_seconds: float | None = 120.0
    stuck_exit_seconds: float = 60.0
    failures: int = 5
    failure_window: float = 600.0
    first_pause: float = 0.5
    longest_pause: float = 60.0
    check_memory: bool = True


@dataclass(frozen=True, slots=True)
class Source:
    """A package that is configured. `path` None: it was loaded elsewhere, and only once."""

    name: str
    path: Path | None
    manifest: Manifest
    context_length: int
    need: MemoryNeed


@dataclass(slots=True)
class Failures:
    """Those of one package: how many lately, and how long to wait for the next attempt."""

    terms: Terms
    now: Callable[[], float] = time.monotonic
    total: int = 0
    _times: deque[float] = field(default_factory=deque)

    def count(self) -> None:
        self.total += 1
        self._times.append(self.now())

    def forgive(self) -> None:
        """Somebody saw to it."""
        self._times.clear()

    @property
    def lately(self) -> int:
        while self._times and self._times[0] < self.now() - self.terms.failure_window:
            self._times.popleft()
        return len(self._times)

    @property
    def too_many(self) -> bool:
        return self.lately >= self.terms.failures

    @property
    def pause(self) -> float:
        """Seconds before the next attempt; none before the first."""
        lately = self.lately
        if lately == 0:
            return 0.0
        return min(self.terms.first_pause * 2.0 ** (lately - 1), self.terms.longest_pause)
