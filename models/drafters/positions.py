"""Where n-grams have been in a growing text."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

from models.drafters.acceptance import Support

# Looked up once: an attribute of an enum is slow to reach, and these are read for every token.
_DISPUTED, _ALONE, _AGREED = Support


class Positions:
    """Where each n-gram of `width` tokens has been: the positions of the tokens behind it.

    The n-gram that ends the text has nothing behind it yet and is not among them.
    """

    def __init__(self, width: int) -> None:
        self._latest: dict[Hashable, int] = {}
        self._earlier = [-1] * width

    def extend(self, ngrams: Iterable[Hashable]) -> None:
        """The next positions follow these n-grams, one each."""
        latest, earlier = self._latest, self._earlier
        for position, ngram in enumerate(ngrams, start=len(earlier)):
            earlier.append(latest.get(ngram, -1))
            latest[ngram] = position

    def latest(self, ngram: Hashable) -> int:
        """The most recent position behind `ngram`, -1 where there is none."""
        return self._latest.get(ngram, -1)

    def earlier(self, position: int) -> int:
        """The position before `position` behind the same n-gram, -1 where there is none."""
        return self._earlier[position]

    def recent(self, ngram: Hashable, most: int) -> list[int]:
        """At most `most` positions behind `ngram`, most recent first."""
        found: list[int] = []
        position = self.latest(ngram)
        while position >= 0 and len(found) < most:
            found.append(position)
            position = self._earlier[position]
        return found

    def support(self, ngram: Hashable, token: int, tokens: Sequence[int]) -> Support:
        """What followed `ngram` the last two times says about `token`."""
        return self.supports((ngram,), (token,), tokens)[0]

    def supports(
        self, ngrams: Iterable[Hashable], behind: Sequence[int], tokens: Sequence[int]
    ) -> list[Support]:
        """The same of each n-gram, about the token of `behind` at its place."""
        known, earlier, found = self._latest, self._earlier, list[Support]()
        for ngram, token in zip(ngrams, behind, strict=False):
            latest = known.get(ngram)
            if latest is None or (before := earlier[latest]) < 0:
                found.append(_ALONE)
            elif tokens[latest] == token == tokens[before]:
                found.append(_AGREED)
            else:
                found.append(_DISPUTED)
        return found
