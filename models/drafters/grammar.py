"""Drafts of answers that a grammar constrains."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from models.draft import Draft, Proposal

NAME = "grammar"


class Place(Protocol):
    """A place in a draft that forks (`models.constraints.guide.Branch`)."""

    def after(self, token: int) -> Place | None: ...


class Grammatical(Protocol):
    """What is needed of `models.constraints.guide.Guide`."""

    def valid(self, tokens: Sequence[int]) -> int: ...

    def forced(self, behind: Sequence[int] = ()) -> list[int]: ...

    def branch(self) -> Place: ...


class GrammarDrafter:
    """Makes others' drafts fit one answer's grammar, and knows what that forces.

    Forced tokens come before what others propose, and behind it. A chain ends before the first
    token that the grammar forbids, a tree loses the branches of such tokens. But of tokens that
    were drawn, and are verified by what they were drawn from, the forbidden one stays, to be
    rejected: left out, what replaces it would be drawn from another distribution than is left when
    it is rejected.
    """

    name = NAME

    def __init__(self, guide: Grammatical) -> None:
        self._guide = guide

    def fit(self, draft: Draft, budget: int) -> Draft:
        """At most `budget` tokens: what `draft`, which has no more either, becomes."""
        forced = self._guide.forced()[:budget]
        if draft.parents is not None:
            return _chain(forced) if forced else self._prune(draft)
        if tuple(forced) != draft.tokens[: len(forced)]:
            return _chain(forced)
        valid = self._guide.valid(draft.tokens) if draft.tokens else 0
        kept = draft if valid == len(draft.tokens) else draft.first(valid)
        if kept is not draft and draft.proposals is not None:
            return _joined(draft.first(valid + 1), len(forced), ())
        if not kept.tokens:
            return kept
        behind = self._guide.forced(kept.tokens) if len(kept.tokens) < budget else []
        return _joined(kept, len(forced), behind[: budget - len(kept.tokens)])

    def _prune(self, draft: Draft) -> Draft:
        """The tree without the branches that the grammar forbids."""
        assert draft.parents is not None, "a tree"
        places: dict[int, Place] = {-1: self._guide.branch()}
        for index, (token, parent) in enumerate(zip(draft.tokens, draft.parents, strict=True)):
            above = places.get(parent)
            place = None if above is None else above.after(token)
            if place is not None:
                places[index] = place
        return draft.only([index for index in places if index >= 0])


def _chain(forced: Sequence[int]) -> Draft:
    return Draft(tuple(forced), confidence=(1.0,) * len(forced), source=NAME)


def _joined(draft: Draft, first: int, behind: Sequence[int]) -> Draft:
    """The chain, whose first tokens are forced, and what is forced behind it."""
    count, more = len(draft.tokens), len(behind)
    if not first and not more:
        return draft
    confidence = draft.confidence or (1.0,) * count
    proposals = None
    if draft.proposals is not None:
        certain = [Proposal.single(token) for token in (*draft.tokens[:first], *behind)]
        proposals = (*certain[:first], *draft.proposals[first:], *certain[first:])
    others = [draft.source_of(index) for index in range(first, count)]
    return Draft(
        tokens=(*draft.tokens, *behind),
        proposals=proposals,
        confidence=((1.0,) * first + tuple(confidence[first:]) + (1.0,) * more),
        source=draft.source,
        sources=(*(NAME,) * first, *others, *(NAME,) * more),
    )
