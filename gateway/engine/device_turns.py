"""Whose turn it is where several packages share a device."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition


class DeviceTurns:
    """Runs of several engines on one device, one at a time and in the order in which they came.

    An engine queues its next run when the last one was answered, so engines that are busy take
    turns by rounds. While only one is loaded (`shared` False) nobody waits and nothing is locked.
    """

    def __init__(self) -> None:
        self.shared = False
        self._changed = Condition()
        self._waiting: deque[object] = deque()
        self._holder: object | None = None

    @contextmanager
    def turn(self, owner: object) -> Iterator[None]:
        """Within the block the device is the `owner`'s. Waits, on the calling thread."""
        ticket = object()
        with self._changed:
            self._waiting.append(ticket)
            while self._holder is not None or self._waiting[0] is not ticket:
                self._changed.wait()
            self._waiting.popleft()
            self._holder = owner
        try:
            yield
        finally:
            self.give_up(owner)

    def give_up(self, owner: object) -> None:
        """The device is not the `owner`'s any more, also where its run does not come back."""
        with self._changed:
            if self._holder is owner:
                self._holder = None
                self._changed.notify_all()
