"""N-grams beyond the request: what the target said to the same user before.

The tokens of earlier answers, with the end of each one's prompt, as a bounded text to copy from.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from models.draft import Draft
from models.drafters.acceptance import CopyConfidence, Support
from models.drafters.positions import Positions

MOST_TOKENS = 32_768
"""Of one user, all texts together; the oldest are forgotten."""

CONTEXT = 16
"""Tokens of a prompt's end that are kept before the answer: what a match is found by."""

_WIDTH = 3
_LONGEST = CONTEXT
_CANDIDATES = 32
_END = -1
"""Behind every text: no token, so nothing is matched or copied across it."""


class Match(NamedTuple):
    """Tokens to copy, the length of what was matched, and what earlier texts say of each."""

    tokens: tuple[int, ...]
    matched: int
    supports: tuple[Support, ...]


class _Shelf:
    """Texts one behind the other, with the places of their trigrams."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.behind = Positions(width=_WIDTH)

    def add(self, text: Sequence[int]) -> None:
        known = self.tokens
        begin = max(len(known), _WIDTH)
        known.extend((*text, _END))
        ends = range(begin, len(known))
        self.behind.extend(tuple(known[end - _WIDTH : end]) for end in ends)

    def texts(self) -> Iterator[tuple[int, ...]]:
        text: list[int] = []
        for token in self.tokens:
            if token != _END:
                text.append(token)
                continue
            yield tuple(text)
            text = []


class Texts:
    """One user's texts. Two shelves of half the size: when one is full the other is emptied, so
    that forgetting costs nothing and never all at once."""

    def __init__(self, texts: Sequence[Sequence[int]] = (), most: int = MOST_TOKENS) -> None:
        self._half = most // 2
        self._new, self._old = _Shelf(), _Shelf()
        for text in texts:
            self.add(text)

    def __len__(self) -> int:
        return len(self._new.tokens) + len(self._old.tokens)

    def __iter__(self) -> Iterator[tuple[int, ...]]:
        """The texts, oldest first."""
        yield from self._old.texts()
        yield from self._new.texts()

    def add(self, text: Sequence[int]) -> None:
        """Of a text longer than a shelf the end is kept."""
        kept = text[-(self._half - 1) :]
        if len(self._new.tokens) + len(kept) + 1 > self._half:
            self._new, self._old = _Shelf(), self._new
        self._new.add(kept)

    def find(self, tail: Sequence[int], budget: int) -> Match | None:
        """What followed the longest earlier occurrence of the end of `tail`, of equally long ones
        the latest: at most `budget` tokens, to the end of that text."""
        if len(tail) < _WIDTH:
            return None
        found = [match for shelf in (self._new, self._old) if (match := _find(shelf, tail))]
        if not found:
            return None
        shelf, start, matched = max(found, key=lambda match: match[2])
        end = shelf.tokens.index(_END, start)
        copied = tuple(shelf.tokens[start : min(end, start + budget)])
        return Match(copied, matched, _supports(shelf, tail, copied)) if copied else None


def _find(shelf: _Shelf, tail: Sequence[int]) -> tuple[_Shelf, int, int] | None:
    best, longest = -1, 0
    for start in shelf.behind.recent(tuple(tail[-_WIDTH:]), _CANDIDATES):
        if shelf.tokens[start] == _END:
            continue
        length = _match_length(shelf.tokens, start, tail)
        if length > longest:
            best, longest = start, length
    return (shelf, best, longest) if longest else None


def _match_length(tokens: Sequence[int], start: int, tail: Sequence[int]) -> int:
    most = min(len(tail), _LONGEST, start)
    length = _WIDTH
    while length < most and tokens[start - length - 1] == tail[-length - 1]:
        length += 1
    return length


def _supports(shelf: _Shelf, tail: Sequence[int], copied: Sequence[int]) -> tuple[Support, ...]:
    text = (*tail[-_WIDTH:], *copied)
    return tuple(
        shelf.behind.support(text[place : place + _WIDTH], token, shelf.tokens)
        for place, token in enumerate(copied)
    )


class StoreDrafter:
    """Implements `models.draft.Drafter` for one request of the user whose `texts` these are."""

    name = "ngram-store"

    def __init__(self, texts: Texts) -> None:
        self._texts = texts
        self.reset(())

    def reset(self, tokens: Sequence[int]) -> None:
        self._confidence = CopyConfidence()
        self._tail: deque[int] = deque(tokens[-_LONGEST:], maxlen=_LONGEST)
        self._match: Match | None = None

    def propose(self, budget: int) -> Draft:
        self._match = self._texts.find(tuple(self._tail), budget) if budget > 0 else None
        if self._match is None:
            return Draft(source=self.name)
        return Draft(
            tokens=self._match.tokens,
            confidence=self._confidence.estimates(self._match.matched, self._match.supports),
            source=self.name,
        )

    def commit(self, tokens: Sequence[int]) -> None:
        if self._match is not None:
            self._learn(self._match, tokens)
        self._match = None
        self._tail.extend(tokens)

    def _learn(self, match: Match, said: Sequence[int]) -> None:
        """Compares with what the target said, verified or not: its word on a draft is the same."""
        told = zip(match.tokens, match.supports, said, strict=False)
        for matched, (proposed, support, token) in enumerate(told, start=match.matched):
            self._confidence.observe(matched, support, proposed == token)
            if proposed != token:
                return
