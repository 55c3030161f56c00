"""Whether the device's threads get on: since when each one's run goes on."""

from __future__ import annotations

import time
from threading import get_ident


class Pulse:
    """Written by the threads that run the device, read by any other.

    A thread has one run at a time. Times are in seconds on the clock of `time.monotonic`.
    """

    def __init__(self) -> None:
        # Each thread writes its own entries alone, and reading a dict's values is one step.
        self._began: dict[int, float] = {}

    def begin(self) -> None:
        """The calling thread begins a run."""
        self._began[get_ident()] = time.monotonic()

    def end(self) -> None:
        """The calling thread's run ended, however."""
        self._began.pop(get_ident(), None)

    def running_for(self, now: float) -> float | None:
        """Seconds that the longest of the present runs has taken; None where nothing runs."""
        began = list(self._began.values())
        return max(0.0, now - min(began)) if began else None
