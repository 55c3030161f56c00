"""Whose turn it is where several packages share a device."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Condition


@dataclass(frozen=True, slots=True, eq=False)
class _Turn:
    """One run's turn. An engine has several threads, and so several turns one after the other: what
    ends one of them ends no other."""

    owner: object


class DeviceTurns:
    """Runs of several engines on one device, one at a time and in the order in which they came.

    An engine queues its next run when the last one was answered, so engines that are busy take
    turns by rounds. While only one is loaded (`shared` False) nobody waits and nothing is locked.
    """

    def __init__(self) -> None:
        self.shared = False
        self._changed = Condition()
        self._waiting: deque[_Turn] = deque()
        self._present: _Turn | None = None

    @contextmanager
    def turn(self, owner: object) -> Iterator[None]:
        """Within the block the device is the `owner`'s. Waits, on the calling thread."""
        turn = _Turn(owner)
        with self._changed:
            self._waiting.append(turn)
            while self._present is not None or self._waiting[0] is not turn:
                self._changed.wait()
            self._waiting.popleft()
            self._present = turn
        try:
            yield
        finally:
            with self._changed:
                if self._present is turn:
                    self._end()

    def give_up(self, owner: object) -> None:
        """The present turn ends if it is the `owner`'s: its run does not come back."""
        with self._changed:
            if self._present is not None and self._present.owner is owner:
                self._end()

    def _end(self) -> None:
        self._present = None
        self._changed.notify_all()
