"""A predicted answer as tokens and as bytes, and where each of its n-grams comes."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Protocol

WIDTHS = (3, 1)
"""Tokens of the n-grams that are looked up."""

Places = dict[tuple[int, ...], list[int]]


class Vocabulary(Protocol):
    """What is needed of `models.tokenizer.Tokenizer`."""

    def encode(self, text: str, /) -> list[int]: ...

    def token_bytes(self, token_id: int, /) -> bytes: ...


class PredictedText:
    """Immutable once made; the answers of a request share it.

    Of the text the first `most` tokens are kept, where it is given. `raw` are the bytes that the
    tokens `ids` add to a text. A place is counted in tokens, an offset in bytes. `indent` is the
    offset of what is not blank.
    """

    def __init__(self, text: str, vocabulary: Vocabulary, most: int | None = None) -> None:
        self._vocabulary = vocabulary
        self.ids = tuple(vocabulary.encode(text)[:most])
        pieces = [vocabulary.token_bytes(token) for token in self.ids]
        self.raw = b"".join(pieces)
        self.indent = len(self.raw) - len(self.raw.lstrip())
        self._offsets = [0, *accumulate(map(len, pieces))]
        self._places = {width: _places(self.ids, width) for width in WIDTHS}

    def bytes_of(self, token: int) -> bytes:
        return self._vocabulary.token_bytes(token)

    def offset(self, place: int) -> int:
        """Of the token at `place`."""
        return self._offsets[place]

    def place(self, offset: int) -> int:
        """Of the token that holds the byte at `offset`; behind the last one, their number."""
        return min(bisect_right(self._offsets, offset) - 1, len(self.ids))

    def behind(self, ngram: tuple[int, ...], place: int, most: int) -> tuple[list[int], list[int]]:
        """Places behind `ngram` where the prediction goes on: at most `most` from `place` on, and
        as many before it, the nearest first."""
        known = self._places[len(ngram)].get(ngram, [])
        split = bisect_left(known, place)
        return known[split : split + most], known[max(0, split - most) : split][::-1]

    def matched(self, place: int, tail: Sequence[int], most: int) -> int:
        """How many of the last tokens of `tail` are those before `place`, `most` at most."""
        most = min(most, place, len(tail))
        length = 0
        while length < most and self.ids[place - length - 1] == tail[-length - 1]:
            length += 1
        return length

    def continuation(self, offset: int, budget: int) -> tuple[int, ...]:
        """At most `budget` tokens from `offset` on. Inside a token, which the answer has cut in
        another way, what is left of that is encoded anew; none where it is no text."""
        place = self.place(offset)
        if place == len(self.ids) or self._offsets[place] == offset:
            return self.ids[place : place + budget]
        begun = self._encoded(self.raw[offset : self._offsets[place + 1]])
        if not begun:
            return ()
        return (*begun, *self.ids[place + 1 : place + 1 + budget])[:budget]

    def _encoded(self, piece: bytes) -> list[int]:
        try:
            ids = self._vocabulary.encode(piece.decode())
        except UnicodeDecodeError:  # half a character
            return []
        # Some vocabularies begin every text with a space of their own.
        return ids if b"".join(map(self._vocabulary.token_bytes, ids)) == piece else []


def _places(ids: Sequence[int], width: int) -> Places:
    found: Places = {}
    # Behind the last n-gram nothing goes on.
    for place in range(width, len(ids)):
        found.setdefault(tuple(ids[place - width : place]), []).append(place)
    return found
