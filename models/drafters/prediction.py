"""What a request says its answer will be, as a drafter (OpenAI's predicted outputs).

The prediction is proposed from where the answer is in it. Where the answer says something else, an
edit is assumed: the answer's last tokens are looked for in the prediction, first from the place of
the divergence on, which finds the end of an insertion, a deletion or a replacement.

The answer is followed by its bytes, not by its tokens: where it is cut into other tokens than the
prediction, as often at an edit or at blanks, it is still in the same place.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from models.draft import Draft
from models.drafters.edits import EditConfidence, stage
from models.drafters.predicted import WIDTHS, PredictedText

NAME = "prediction"

_LONGEST = 16
_NEARBY = 16
"""Occurrences of an n-gram that are compared, in each direction."""

_TRUSTED = 4
"""Tokens said as predicted, beyond what a place was found by, that prove it."""

_NOT_NEAREST = 1.5
_BEHIND = 2.0
"""Tokens that a match must be longer by: elsewhere than at the nearest place, and before what was
already said."""

_AMBIGUOUS = 1.0
_LOST = -1


class _Found(NamedTuple):
    """A place where the prediction may go on, and how good a match it is."""

    place: int
    matched: int
    score: float


class PredictionDrafter:
    """Implements `models.draft.Drafter` for one answer.

    A token costs O(1) to follow where it was predicted, otherwise a bounded number of comparisons;
    a proposal costs the tokens that are copied.
    """

    name = NAME

    def __init__(self, text: PredictedText) -> None:
        self._text = text
        self.reset(())

    def reset(self, tokens: Sequence[int]) -> None:
        """The prompt says nothing about where the answer is."""
        self._confidence = EditConfidence()
        self._tail: deque[int] = deque(maxlen=_LONGEST)
        self._offset = 0
        self._divergence = 0
        self._blank = True
        self._found, self._run, self._disputed = 0, 0, False
        self._proposed: tuple[int, ...] = ()
        self._stages: tuple[int, ...] = ()

    def propose(self, budget: int) -> Draft:
        self._proposed = ()
        if self._offset != _LOST and budget > 0:
            self._proposed = self._text.continuation(self._offset, budget)
        if not self._proposed:
            return Draft(source=self.name)
        self._stages = tuple(
            stage(since, self._found, disputed=self._disputed)
            for since in range(self._run, self._run + len(self._proposed))
        )
        confidence = self._confidence.estimates(self._stages)
        return Draft(self._proposed, confidence=confidence, source=self.name)

    def commit(self, tokens: Sequence[int]) -> None:
        self._learn(tokens)
        self._proposed = ()
        for token in tokens:
            self._follow(token)

    def _learn(self, said: Sequence[int]) -> None:
        """Compares with what the target said, verified or not: its word on a draft is the same."""
        for proposed, reached, token in zip(self._proposed, self._stages, said, strict=False):
            self._confidence.observe(reached, proposed == token)
            if proposed != token:
                return

    def _follow(self, token: int) -> None:
        self._tail.append(token)
        piece = self._text.bytes_of(token)
        if self._blank:
            piece = self._opened(piece)
        if self._offset != _LOST and self._text.raw.startswith(piece, self._offset):
            self._offset += len(piece)
            self._run += bool(piece)
            return
        if not self._search(self._diverge()):
            self._offset = _LOST

    def _opened(self, piece: bytes) -> bytes:
        """Answers and predictions may differ in the blanks that they begin with, as templates and
        vocabularies want it: of `piece` what is left to compare."""
        bare = piece.lstrip()
        self._blank = not bare
        if self._text.raw.startswith(piece, self._offset):
            return piece
        self._offset = max(self._offset, self._text.indent)
        return bare

    def _diverge(self) -> bool:
        """Remember where, unless the answer never was there."""
        if self._offset == _LOST or self._run < _TRUSTED:
            return False
        self._divergence = self._text.place(self._offset)
        return True

    def _search(self, replaced: bool) -> bool:
        """Whether a place was found. Where a token was `replaced`, and stands nowhere else, the one
        behind that which was predicted may come next."""
        found = list(self._candidates())
        best = max(found, key=lambda each: each.score, default=None)
        if best is None or best.score <= 0:
            behind = self._divergence + 1
            if not replaced or behind >= len(self._text.ids):
                return False
            best = _Found(behind, 1, 1.0)
        ids = self._text.ids
        said = {each.place for each in found if each.score > best.score - _AMBIGUOUS}
        self._disputed = any(ids[place] != ids[best.place] for place in said)
        self._offset = self._text.offset(best.place)
        self._found, self._run = best.matched, 0
        return True

    def _candidates(self) -> Iterator[_Found]:
        """Places behind the answer's last tokens, from the divergence on before all others."""
        tail = tuple(self._tail)
        nearest: int | None = None
        for width in sorted(WIDTHS):
            after, before = self._text.behind(tail[-width:], self._divergence, _NEARBY)
            if nearest is None and after:
                nearest = after[0]
            for place in (*after, *before):
                matched = self._text.matched(place, tail, _LONGEST)
                score = matched - (0.0 if place == nearest else _NOT_NEAREST)
                score -= _BEHIND if place < self._divergence else 0.0
                yield _Found(place, matched, score)
            if len(tail) < max(WIDTHS):
                return
