"""Where in an answer stops are looked for: not in its calls, whose text is not said."""

from __future__ import annotations

from gateway.calls.reader import AnswerReader


class CallScope:
    """Reads one answer beside who tells it; a `gateway.engine.stops.Scope`.

    A call is one from its opening mark to its closing mark. What only looks like one is text, and
    so not out of scope.
    """

    def __init__(self, reader: AnswerReader) -> None:
        self._reader = reader

    @property
    def outside(self) -> bool:
        return self._reader.called

    @property
    def undecided(self) -> int:
        return self._reader.undecided

    @property
    def leaving(self) -> bool:
        return self._reader.calling

    def push(self, character: str) -> None:
        self._reader.push(character)
