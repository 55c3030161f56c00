"""Where in an answer stops are looked for: not in its calls, whose text is not said; and where it
is over, if it may have one call alone."""

from __future__ import annotations

from gateway.calls.reader import AnswerReader


class CallScope:
    """Reads one answer beside who tells it; a `gateway.engine.stops.Scope`.

    A call is one from its opening mark to its closing mark. What only looks like one is text, and
    so not out of scope.
    """

    def __init__(self, reader: AnswerReader) -> None:
        self._reader = reader
        self._beyond: int | None = None

    @property
    def outside(self) -> bool:
        return self._reader.called

    @property
    def undecided(self) -> int:
        return self._reader.undecided

    @property
    def leaving(self) -> bool:
        return self._reader.calling

    @property
    def beyond(self) -> int | None:
        return self._beyond

    def push(self, character: str) -> None:
        if self._beyond is not None:
            self._beyond += 1
            return
        self._reader.push(character)
        if self._reader.spare is not None:
            # What was taken for the beginning of the closing mark stays where it is.
            self._beyond = min(1, self._reader.spare)
