"""Prompt lookup: the request's own tokens as the draft model.

Where the last tokens occurred before, what followed then is proposed again (prompt lookup decoding;
copying from a reference as in arXiv 2304.04487). The longest match wins, of equally long ones the
most recent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from models.draft import Draft
from models.drafters.acceptance import AcceptanceByMatch


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
        self._acceptance = AcceptanceByMatch()
        self._proposed: tuple[int, ...] = ()
        self._matched = 0
        self._tokens: list[int] = []
        # The most recent position behind a token, and behind a pair; `_earlier[p]` is the position
        # before p that stands behind the same pair, -1 where there is none. Only positions that
        # hold a token are known here: the end of the text continues nothing.
        self._behind_one: dict[int, int] = {}
        self._behind_two: dict[tuple[int, int], int] = {}
        self._earlier: list[int] = []
        self._append(tokens)

    def propose(self, budget: int) -> Draft:
        start, matched = self._find() if budget > 0 else (-1, 0)
        self._matched = matched
        self._proposed = self._continuation(start, budget) if matched else ()
        if not self._proposed:
            return Draft(source=self.name)
        return Draft(
            tokens=self._proposed,
            confidence=self._acceptance.estimates(matched, len(self._proposed)),
            source=self.name,
        )

    def commit(self, tokens: Sequence[int]) -> None:
        self._learn(tokens)
        self._proposed = ()
        self._append(tokens)

    def _append(self, tokens: Sequence[int]) -> None:
        known, behind_one, behind_two = self._tokens, self._behind_one, self._behind_two
        for token in tokens:
            position, earlier = len(known), -1
            if position >= 2:
                pair = (known[-2], known[-1])
                earlier = behind_two.get(pair, -1)
                behind_two[pair] = position
            if position >= 1:
                behind_one[known[-1]] = position
            self._earlier.append(earlier)
            known.append(token)

    def _find(self) -> tuple[int, int]:
        """Where the longest earlier match of the last tokens goes on, and its length."""
        tokens, longest = self._tokens, self._settings.longest
        end = len(tokens)
        position = self._behind_two.get((tokens[-2], tokens[-1]), -1) if end >= 2 else -1
        if position < 0:
            if end == 0 or self._settings.shortest > 1:
                return -1, 0
            position = self._behind_one.get(tokens[-1], -1)
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
            position = self._earlier[position]
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
        known = self._tokens[start : start + budget]
        period = len(self._tokens) - start
        while len(known) < budget:
            known.append(known[len(known) - period])
        return tuple(known)

    def _learn(self, committed: Sequence[int]) -> None:
        """Compares with what the target said, verified or not: its word on a draft is the same."""
        for index, (proposed, token) in enumerate(zip(self._proposed, committed, strict=False)):
            self._acceptance.observe(self._matched + index, proposed == token)
            if proposed != token:
                return
