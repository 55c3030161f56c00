"""Verification: which tokens of a draft stand, and which token the target adds.

One walk for chains and trees alike: from the last committed token down, at each node the rule is
given the target's distribution there and the node's children, and either descends into one of them
or gives the token that ends the round. Only rows that are reached are processed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from models.draft import Draft
from models.rows import RowResult
from models.sampling.distribution import TargetRow
from models.sampling.sampler import Sampler
from models.verification.rule import Candidate, Randomness, Rule
from models.verification.rules import Coupled, make_rule

__all__ = ["Outcome", "Rows", "Rule", "accept", "make_rule"]


class Rows(Protocol):
    """The target's rows of a round: 0 behind the last committed token, i + 1 behind draft i."""

    def row(self, index: int) -> TargetRow: ...


class Outcome(NamedTuple):
    """The accepted path, as indices of draft tokens, and the token the target adds to the round."""

    path: tuple[int, ...]
    bonus: int

    @property
    def accepted(self) -> int:
        return len(self.path)

    def tokens(self, draft: Sequence[int]) -> tuple[int, ...]:
        """The tokens the round advances by: the accepted path, then the bonus token."""
        return (*[draft[index] for index in self.path], self.bonus)


def accept(draft: Draft, rows: Rows, sampler: Sampler, rule: Rule) -> Outcome:
    """Verify `draft`; an empty one just draws the next token. `sampler` is not changed."""
    plain = draft.parents is None and sampler.takes_likeliest and isinstance(rule, Coupled)
    if plain and isinstance(rows, RowResult):
        return _greedy(draft.tokens, rows.greedy)
    node, path, ahead = -1, list[int](), list[int]()
    while True:
        target = sampler.distribution(rows.row(node + 1), ahead)
        randomness = Randomness(sampler.seed, sampler.position + len(ahead))
        choice = rule.choose(target, _children(draft, node), randomness)
        if choice.child is None:
            return Outcome(tuple(path), choice.token)
        node = choice.child
        path.append(node)
        ahead.append(choice.token)


def _greedy(tokens: Sequence[int], likeliest: Sequence[int]) -> Outcome:
    """What the walk comes to for a chain where the most likely token is always taken."""
    depth = 0
    while depth < len(tokens) and tokens[depth] == likeliest[depth]:
        depth += 1
    return Outcome(tuple(range(depth)), likeliest[depth])


def _children(draft: Draft, node: int) -> list[Candidate]:
    tokens, proposals = draft.tokens, draft.proposals
    if draft.parents is None:
        places = [node + 1] if node + 1 < len(tokens) else []
    else:
        places = [place for place, parent in enumerate(draft.parents) if parent == node]
    return [
        Candidate(place, tokens[place], None if proposals is None else proposals[place])
        for place in places
    ]
