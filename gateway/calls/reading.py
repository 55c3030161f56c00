"""Reading one answer: its deltas as parts, and what of it was thought."""

from __future__ import annotations

from gateway.calls.parts import Part
from gateway.calls.reader import AnswerReader
from gateway.calls.thoughts import ThoughtTokens
from gateway.engine.requests import Delta


class Reading:
    """`thoughts` None: the model does not think."""

    def __init__(self, reader: AnswerReader, thoughts: ThoughtTokens | None) -> None:
        self._reader = reader
        self._thoughts = thoughts

    @property
    def called(self) -> bool:
        """Whether functions were called, all of them to their ends."""
        return self._reader.calls > 0 and self._reader.whole

    @property
    def cut(self) -> bool:
        """Whether a call broke off."""
        return not self._reader.whole

    @property
    def thought_tokens(self) -> int:
        """Of what was read, when all of it was."""
        return 0 if self._thoughts is None else self._thoughts.finish()

    def push(self, delta: Delta) -> list[Part]:
        if self._thoughts is not None:
            self._thoughts.add(delta.ids)
        return self._reader.push(delta.text)

    def finish(self) -> list[Part]:
        return self._reader.finish()
