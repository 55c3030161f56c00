"""Even pacing: the tokens of a round are released over the time that the next one takes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from gateway.engine.requests import Delta

_WEIGHT = 0.3
"""Weight of one round in the running mean of their times."""


class Timer(Protocol):
    """What pacing needs of an event loop's handles."""

    def cancel(self) -> None: ...


class Loop(Protocol):
    """What pacing needs of an event loop. Times in seconds."""

    def time(self) -> float: ...

    def call_later(self, delay: float, callback: Callable[[], object], /) -> Timer: ...


class Pacer:
    """Releases the deltas of a round, one token each: the first at once, the others evenly over
    the time that rounds of this answer take.

    What is not released yet comes before the next round's first token, and all of it with the
    answer's end: no round and no last token waits for the clock. Until two rounds were seen nothing
    is held back.
    """

    def __init__(self, release: Callable[[Delta], None], loop: Loop) -> None:
        self._release = release
        self._loop = loop
        self._waiting: deque[Delta] = deque()
        self._timer: Timer | None = None
        self._gap = 0.0
        self._round_s: float | None = None
        self._last: float | None = None

    def add(self, deltas: Sequence[Delta]) -> None:
        """A round's tokens."""
        self.flush()
        now = self._loop.time()
        if self._last is not None:
            taken = now - self._last
            mean = taken if self._round_s is None else self._round_s
            self._round_s = mean + _WEIGHT * (taken - mean)
        self._last = now
        self._waiting.extend(deltas)
        if self._round_s is None:
            self.flush()
        elif deltas:
            self._gap = self._round_s / len(deltas)
            self._next()

    def flush(self) -> None:
        """Everything at once."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._waiting:
            self._release(self._waiting.popleft())

    def _next(self) -> None:
        self._timer = None
        self._release(self._waiting.popleft())
        if self._waiting:
            self._timer = self._loop.call_later(self._gap, self._next)
