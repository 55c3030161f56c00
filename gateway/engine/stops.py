"""Finding stop strings in a text that arrives in pieces, or in parts of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

_START = 0


@dataclass(frozen=True, slots=True)
class Stopped:
    """`stop` was found; it ends behind `end` characters of the piece that was pushed last: 0 or
    less where it was found late. It is empty where the answer is over there by itself."""

    stop: str
    end: int


class Scope(Protocol):
    """Where in an answer stops are looked for, and where it is over without one. Reads it character
    by character."""

    @property
    def outside(self) -> bool:
        """Whether what came last is out of scope."""

    @property
    def undecided(self) -> int:
        """How many of the last characters, at most, may turn out to be out of scope or not."""

    @property
    def leaving(self) -> bool:
        """Whether what comes next is out of scope, by what is known."""

    @property
    def beyond(self) -> int | None:
        """How many of the last characters are behind the answer's end; None: it goes on."""

    def push(self, character: str, /) -> None: ...


class StopScanner:
    """The stop strings as one automaton (Aho and Corasick, CACM 1975).

    A character costs the same however many stops there are and however long they are. The text
    stops at the stop that is complete first, of several at once the longest: where that is
    depends on the characters alone, not on the pieces that they came in.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        assert all(stops), "an empty stop would stop everything"
        self._next: list[dict[str, int]] = [{}]
        self._depth = [0]
        self._ending: list[str | None] = [None]
        self._shorter = [_START]
        for stop in stops:
            self._insert(stop)
        self._link()
        self._state = _START

    @property
    def held(self) -> int:
        """How many of the last characters may be the beginning of a stop."""
        return self._depth[self._state]

    @property
    def leaving(self) -> bool:
        """Whether what comes next is not looked at."""
        return False

    def skip(self, piece: str) -> None:
        """Read on without looking for stops."""

    def finish(self) -> Stopped | None:
        """The text has ended: what stands in what was not decided yet."""
        return None

    def reset(self) -> None:
        """What comes next has nothing to do with what came."""
        self._state = _START

    def push(self, piece: str) -> Stopped | None:
        """Read on. Nothing may follow once a stop was found."""
        for index, character in enumerate(piece):
            self._state = self._follow(self._state, character)
            stop = self._ending[self._state]
            if stop is not None:
                return Stopped(stop, index + 1)
        return None

    def _insert(self, stop: str) -> None:
        state = _START
        for character in stop:
            known = self._next[state].get(character)
            if known is None:
                known = len(self._next)
                self._next[state][character] = known
                self._next.append({})
                self._depth.append(self._depth[state] + 1)
                self._ending.append(None)
                self._shorter.append(_START)
            state = known
        self._ending[state] = stop

    def _link(self) -> None:
        """For every state the longest shorter beginning of a stop that its text ends with."""
        waiting = deque(self._next[_START].values())
        while waiting:
            state = waiting.popleft()
            for character, deeper in self._next[state].items():
                shorter = self._follow(self._shorter[state], character)
                self._shorter[deeper] = shorter
                if self._ending[deeper] is None:
                    self._ending[deeper] = self._ending[shorter]
                waiting.append(deeper)

    def _follow(self, state: int, character: str) -> int:
        while (deeper := self._next[state].get(character)) is None:
            if state == _START:
                return _START
            state = self._shorter[state]
        return deeper


class ScopedScanner(StopScanner):
    """The same, looked for only within `scope`, and the end that this has. No stop reaches over
    what is out of it."""

    def __init__(self, stops: Sequence[str], scope: Scope) -> None:
        super().__init__(stops)
        self._looks = bool(stops)
        self._scope = scope
        self._unread = ""

    @property
    def held(self) -> int:
        return super().held + len(self._unread)

    @property
    def leaving(self) -> bool:
        return self._scope.leaving

    def push(self, piece: str) -> Stopped | None:
        for index, character in enumerate(piece):
            self._scope.push(character)
            beyond = self._scope.beyond
            if beyond is not None:
                return Stopped("", max(0, index + 1 - beyond))
            if not self._looks:
                continue
            self._unread += character
            found = self._read(self._scope.undecided)
            if found is not None:
                return Stopped(found.stop, found.end + index + 1)
        return None

    def skip(self, piece: str) -> None:
        for character in piece:
            self._scope.push(character)
        self._unread = ""
        self.reset()

    def finish(self) -> Stopped | None:
        return self._read(0)

    def _read(self, undecided: int) -> Stopped | None:
        """Look at what is decided; the end of what was found, counted from the last character."""
        if self._scope.outside:
            self._unread = ""
            self.reset()
            return None
        end = max(0, len(self._unread) - undecided)
        ready, self._unread = self._unread[:end], self._unread[end:]
        found = super().push(ready)
        if found is None:
            return None
        return Stopped(found.stop, found.end - len(ready) - len(self._unread))
