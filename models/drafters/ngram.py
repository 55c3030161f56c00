"""Prompt lookup: the request's own tokens as the draft model.

Where the last tokens occurred before, what followed then is proposed again (prompt lookup decoding;
copying from a reference as in arXiv 2304.04487). The longest match wins, of equally long ones the
most recent.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from models.draft import Draft
from models.drafters.acceptance import CopyConfidence, Support

# Looked up once: an attribute of an enum is slow to reach, and these are read for every token.
_DISPUTED, _ALONE, _AGREED = Support


@dataclass(frozen=True, slots=True)
class NgramSettings:
    """`shortest` tokens must match for a proposal; `longest` are compared at most.

    `candidates` bounds how many earlier occurrences of the last two tokens are compared, most
    recent first.
    """

    shortest: Literal[1, 2] = 1
    longest: int = 16
    candidates: int = 32


class NgramDrafter:
    """Implements `models.draft.Drafter` for one request; nothing is shared between requests.

    A token costs O(1) to commit and a fixed number of integers to keep. A proposal costs at most
    `candidates` comparisons and `budget` copied tokens.
    """

    name = "ngram"

    def __init__(self, settings: NgramSettings | None = None) -> None:
        self._settings = settings or NgramSettings()
        self.reset(())

    @property
    def matched(self) -> int:
        """Length of the match behind the last proposal, 0 where there was none."""
        return self._matched

    def reset(self, tokens: Sequence[int]) -> None:
        self._confidence = CopyConfidence()
        self._proposed: tuple[int, ...] = ()
        self._support: tuple[Support, ...] = ()
        self._matched = 0
        self._tokens: list[int] = []
        self._behind_one = _Positions(width=1)
        self._behind_two = _Positions(width=2)
        self._append(tokens)

    def propose(self, budget: int) -> Draft:
        start, self._matched = self._find() if budget > 0 else (-1, 0)
        self._proposed = self._continuation(start, budget) if self._matched else ()
        if not self._proposed:
            return Draft(source=self.name)
        self._support = self._supports()
        return Draft(
            tokens=self._proposed,
            confidence=self._confidence.estimates(self._matched, self._support),
            source=self.name,
        )

    def commit(self, tokens: Sequence[int]) -> None:
        self._learn(tokens)
        self._proposed = ()
        self._append(tokens)

    def _append(self, tokens: Sequence[int]) -> None:
        known = self._tokens
        begin = len(known)
        known.extend(tokens)
        one, two = max(begin, 1), max(begin, 2)
        self._behind_one.extend(known[one - 1 : -1])
        self._behind_two.extend(zip(known[two - 2 : -2], known[two - 1 : -1], strict=True))

    def _find(self) -> tuple[int, int]:
        """Where the longest earlier match of the last tokens goes on, and its length."""
        tokens, longest = self._tokens, self._settings.longest
        end = len(tokens)
        position = self._behind_two.latest((tokens[-2], tokens[-1])) if end > 1 else -1
        if position < 0:
            if end == 0 or self._settings.shortest > 1:
                return -1, 0
            position = self._behind_one.latest(tokens[-1])
            return position, int(position >= 0)
        best, matched = -1, 0
        for _ in range(self._settings.candidates):
            if position < 0 or matched >= longest:
                break
            # Only worth a look where it also matches one token beyond the best so far.
            beyond = position - matched - 1
            if beyond >= 0 and tokens[beyond] == tokens[end - matched - 1]:
                length = self._match_length(position)
                if length > matched:
                    best, matched = position, length
            position = self._behind_two.earlier(position)
        return best, matched

    def _match_length(self, position: int) -> int:
        tokens = self._tokens
        end, most = len(tokens), min(self._settings.longest, position)
        length = 2
        while length < most and tokens[position - length - 1] == tokens[end - length - 1]:
            length += 1
        return length

    def _continuation(self, start: int, budget: int) -> tuple[int, ...]:
        """`budget` tokens from `start`; past the end of what is known they repeat themselves."""
        copied = self._tokens[start : start + budget]
        period = len(self._tokens) - start
        while len(copied) < budget:
            copied.append(copied[-period])
        return tuple(copied)

    def _supports(self) -> tuple[Support, ...]:
        """For each proposed token, what followed its context the last two times."""
        tokens, last = self._tokens, self._tokens[-1]
        supports = []
        if self._matched == 1:
            supports.append(self._behind_one.support(last, self._proposed[0], tokens))
        else:
            supports.append(self._behind_two.support((tokens[-2], last), self._proposed[0], tokens))
        for token in self._proposed[1:]:
            before, last = last, self._proposed[len(supports) - 1]
            supports.append(self._behind_two.support((before, last), token, tokens))
        return tuple(supports)

    def _learn(self, committed: Sequence[int]) -> None:
        """Compares with what the target said, verified or not: its word on a draft is the same."""
        said = zip(self._proposed, self._support, committed, strict=False)
        for matched, (proposed, support, token) in enumerate(said, start=self._matched):
            self._confidence.observe(matched, support, proposed == token)
            if proposed != token:
                return


class _Positions:
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

    def support(self, ngram: Hashable, token: int, tokens: Sequence[int]) -> Support:
        """What followed `ngram` the last two times says about `token`."""
        latest = self._latest.get(ngram)
        if latest is None or (before := self._earlier[latest]) < 0:
            return _ALONE
        return _AGREED if tokens[latest] == token == tokens[before] else _DISPUTED
