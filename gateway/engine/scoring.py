"""Log-probabilities of an answer's tokens and of a prompt's."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.engine.requests import PromptScored, TokenLogprob
from models.sampling.distribution import TargetRow
from models.sampling.logprobs import token_logprob
from models.verification import Rows

_WIDEST = 64
"""Tokens of a chunk whose rows are all wanted: every one of them is as wide as the vocabulary."""


def score(row: TargetRow, token: int, top: int) -> TokenLogprob:
    """That of `token` behind `row`, and those of the `top` most likely ones."""
    logprob, best = token_logprob(row, token, top)
    return TokenLogprob(token, logprob, best)


class RowsFrom:
    """The rows of a result from the one at `start` on."""

    def __init__(self, rows: Rows, start: int) -> None:
        self._rows = rows
        self._start = start

    def row(self, index: int) -> TargetRow:
        return self._rows.row(self._start + index)


class PromptScores:
    """Collects the scores of a prompt that is prefilled in chunks."""

    def __init__(self, prompt: Sequence[int], top: int) -> None:
        self._prompt = prompt
        self._top = top
        self._scores: list[TokenLogprob | None] = [None]

    def width(self, chunk: int) -> int:
        """`chunk`, or less where so many whole rows would be too many."""
        return min(chunk, _WIDEST)

    def add(self, rows: Rows, count: int) -> None:
        """The rows behind the next `count` tokens of the prompt."""
        for index in range(count):
            following = len(self._scores)
            if following < len(self._prompt):
                token = self._prompt[following]
                self._scores.append(score(rows.row(index), token, self._top))

    def event(self) -> PromptScored:
        return PromptScored(tuple(self._scores))
