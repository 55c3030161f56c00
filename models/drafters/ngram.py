"""Prompt lookup: the request's own tokens as the draft model.

Where the last tokens occurred before, what followed then is proposed again (prompt lookup decoding;
copying from a reference as in arXiv 2304.04487). Every occurrence speaks for what followed it, the
longer its match and the more recent it is, the more: so a long match decides, and where only a
token or two match what followed them most often does. Where what followed differed, several
continuations can be proposed as a tree.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from models.draft import Draft
from models.drafters.acceptance import CopyConfidence, Support
from models.drafters.positions import Positions
from models.drafters.trie import Occurrence, Trie

_DECAY = 0.97
_FAR = 8
_WEIGHTS = tuple(4.0**matched for matched in range(_FAR + 1))
"""What an occurrence's word counts for by its match. On a 135M model's own answers bases from 2 to
8 and decays from 0.9 to 1 do equally well, all better than the longest match alone."""


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
    `candidates` comparisons, as many again for matches of a single token, and `budget` copied
    tokens; with up to `branches` > 1 continuations as many copied tokens for each of them.
    """

    name = "ngram"

    def __init__(self, settings: NgramSettings | None = None, branches: int = 1) -> None:
        self._settings = settings or NgramSettings()
        self._branches = branches
        self._decays = [_DECAY**rank for rank in range(self._settings.candidates)]
        self.reset(())

    @property
    def matched(self) -> int:
        """Length of the match behind the last proposal, 0 where there was none."""
        return self._matched

    def reset(self, tokens: Sequence[int]) -> None:
        self._confidence = CopyConfidence()
        self._proposed: tuple[int, ...] = ()
        self._support: Sequence[Support] = ()
        self._trie: Trie | None = None
        self._matched = 0
        self._tokens: list[int] = []
        self._behind_one = Positions(width=1)
        self._behind_two = Positions(width=2)
        self._append(tokens)

    def propose(self, budget: int) -> Draft:
        if self._branches > 1:
            return self._propose_tree(budget)
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

    def _propose_tree(self, budget: int) -> Draft:
        occurrences = self._occurrences(budget) if budget > 0 else []
        self._matched = occurrences[0].matched if occurrences else 0
        self._trie = Trie(self._tokens, self._judge, self._confidence) if occurrences else None
        if self._trie is None:
            return Draft(source=self.name)
        self._trie.grow(occurrences, budget)
        return self._trie.draft(self.name)

    def commit(self, tokens: Sequence[int]) -> None:
        if self._trie is not None:
            self._trie.learn(tokens)
        self._learn(tokens)
        self._trie, self._proposed = None, ()
        self._append(tokens)

    def _append(self, tokens: Sequence[int]) -> None:
        known = self._tokens
        begin = len(known)
        known.extend(tokens)
        one, two = max(begin, 1), max(begin, 2)
        self._behind_one.extend(known[one - 1 : -1])
        self._behind_two.extend(zip(known[two - 2 : -2], known[two - 1 : -1], strict=True))

    def _find(self) -> tuple[int, int]:
        """Where what is said for the most goes on, and the length of the match behind it."""
        tokens, most = self._tokens, self._settings.candidates
        votes: dict[int, float] = {}
        best: dict[int, tuple[int, int]] = {}
        longer: Sequence[int] = ()
        if len(tokens) > 1:
            longer = self._behind_two.recent((tokens[-2], tokens[-1]), most)
            for position, decay in zip(longer, self._decays, strict=False):
                token, matched = tokens[position], self._match_length(position)
                weight = _WEIGHTS[matched if matched < _FAR else _FAR] * decay
                votes[token] = votes.get(token, 0.0) + weight
                if token not in best or matched > best[token][1]:
                    best[token] = position, matched
        if tokens and self._settings.shortest == 1:
            known = set(longer)
            single = self._behind_one.recent(tokens[-1], most)
            for position, decay in zip(single, self._decays, strict=False):
                if position not in known:
                    token = tokens[position]
                    votes[token] = votes.get(token, 0.0) + _WEIGHTS[1] * decay
                    best.setdefault(token, (position, 1))
        if not votes:
            return -1, 0
        return best[max(votes, key=votes.__getitem__)]

    def _occurrences(self, budget: int) -> list[Occurrence]:
        """Of the best, `branches` that go on differently within `budget` tokens."""
        found: dict[tuple[int, ...], Occurrence] = {}
        for occurrence in self._by_preference():
            found.setdefault(self._continuation(occurrence.start, budget), occurrence)
            if len(found) == self._branches:
                break
        return list(found.values())

    def _by_preference(self) -> Iterator[Occurrence]:
        """Earlier occurrences of the last tokens: the longest match, then the most recent."""
        tokens, most = self._tokens, self._settings.candidates
        if not tokens:
            return
        if len(tokens) > 1:
            recent = self._behind_two.recent((tokens[-2], tokens[-1]), most)
            longer = [Occurrence(position, self._match_length(position)) for position in recent]
            yield from sorted(longer, key=lambda occurrence: -occurrence.matched)
        if self._settings.shortest == 1:
            # Those of a longer match come again here; what follows them is known already.
            recent = self._behind_one.recent(tokens[-1], most)
            for position in recent:
                yield Occurrence(position, 1)

    def _match_length(self, position: int) -> int:
        tokens = self._tokens
        end, most = len(tokens), min(self._settings.longest, position)
        if tokens[position - most : position] == tokens[end - most :]:
            return most
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

    def _supports(self) -> list[Support]:
        """For each proposed token, what followed its context the last two times."""
        tokens, proposed = self._tokens, self._proposed
        text = (*tokens[-2:], *proposed)
        begin = len(text) - len(proposed)
        if self._matched > 1:
            return self._behind_two.supports(pairwise(text), proposed, tokens)
        pairs = pairwise(text[begin - 1 :])
        first = self._behind_one.support(tokens[-1], proposed[0], tokens)
        return [first, *self._behind_two.supports(pairs, proposed[1:], tokens)]

    def _judge(self, before: int, last: int, token: int, matched: int) -> Support:
        if matched == 1:
            return self._behind_one.support(last, token, self._tokens)
        return self._behind_two.support((before, last), token, self._tokens)

    def _learn(self, committed: Sequence[int]) -> None:
        """Compares with what the target said, verified or not: its word on a draft is the same."""
        said = zip(self._proposed, self._support, committed, strict=False)
        for matched, (proposed, support, token) in enumerate(said, start=self._matched):
            self._confidence.observe(matched, support, proposed == token)
            if proposed != token:
                return
