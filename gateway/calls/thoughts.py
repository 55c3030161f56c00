"""How many tokens of an answer are a thought."""

from __future__ import annotations

from collections.abc import Iterable

from gateway.calls.dialects import THINK, THOUGHT
from models.tokenizer import StreamDecoder


class ThoughtTokens:
    """Counts them as they come, the marks among them. `thinking`: the prompt ends in a thought."""

    def __init__(self, decoder: StreamDecoder, *, thinking: bool) -> None:
        self.count = 0
        self._decoder = decoder
        self._thinking = thinking
        self._over = False
        self._seen = ""

    def add(self, ids: Iterable[int]) -> None:
        for token in ids:
            if self._over:
                return
            self._seen += self._decoder.push((token,))
            self.count += 1
            if THOUGHT in self._seen:
                self._over = True
            elif self._thinking:
                self._seen = self._seen[-len(THOUGHT) :]
            else:
                self._decide()

    def _decide(self) -> None:
        """Whether the answer begins with a thought."""
        begun = self._seen.lstrip()
        if begun.startswith(THINK):
            self._thinking = True
        elif not THINK.startswith(begun):
            self._over, self.count = True, 0

    def finish(self) -> int:
        """The count, when the answer has ended."""
        return self.count if self._thinking else 0
