"""How far a drafter's drafts are accepted, learnt from outcomes."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple, Protocol

from models.draft import Draft

UNMEASURED = 0.6
"""The share of a drafter's tokens taken for accepted where nothing is known of it."""

_SURPRISE = 0.005
"""Rejections in a row of this probability are no chance, but a drafter or a text that changed."""

_AFTER_SURPRISE = 2.0
"""The outcomes, all of them rejections, that are left of what was known before."""


class Prior(Protocol):
    """What is believed before there are outcomes of one's own. `version` is another number whenever
    that may have changed."""

    @property
    def version(self) -> int: ...

    def accepted(self, depth: int) -> float:
        """The probability that the token at `depth` (0 the first) is accepted, given that those
        before it are."""

    def accepted_to(self, length: int) -> list[float]:
        """`accepted` of depths 0 to `length` - 1."""

    def note(self, outcomes: Sequence[Outcome]) -> None:
        """Learn from what became of a draft, by depth."""


class Published:
    """Shares measured at export, as survival by depth; the last goes on."""

    version = 0

    def __init__(self, survival: Sequence[float] = ()) -> None:
        before = (1.0, *survival)
        self._accepted = [
            min(1.0, now / earlier) if earlier > 0 else 0.0
            for earlier, now in zip(before, survival, strict=False)
        ] or [UNMEASURED]

    def accepted(self, depth: int) -> float:
        return self._accepted[min(depth, len(self._accepted) - 1)]

    def accepted_to(self, length: int) -> list[float]:
        known = self._accepted[:length]
        return known + known[-1:] * (length - len(known))

    def note(self, outcomes: Sequence[Outcome]) -> None:
        """What was measured stays what it is."""


class Survival:
    """Estimates by depth: they begin as a prior worth `weight` outcomes; all fade by `memory`.

    The prior hears of every outcome, so that what one request teaches is the next one's prior. A
    tree's token at a depth is accepted where any of those that follow the path so far is right.
    With `abrupt` rejections in a row that the estimate has for impossible are believed at once: one
    text changes so, a workload does not.
    """

    def __init__(self, prior: Prior, weight: float, memory: float, *, abrupt: bool = False) -> None:
        self._prior = prior
        self._weight = weight
        self._memory = memory
        self._abrupt = abrupt
        self._right: list[float] = []
        self._tried: list[float] = []
        self._accepted: list[float] = []
        self._streaks: list[Streak] = []
        self._version = 0
        self._listed: list[float] = []
        self._listed_of = -1

    @property
    def version(self) -> int:
        return self._version + self._prior.version

    def accepted(self, depth: int) -> float:
        known = self._accepted
        return known[depth] if depth < len(known) else self._prior.accepted(depth)

    def expected(self, length: int) -> float:
        """Accepted tokens to expect of a draft of `length`: the sum of the survivals s_i."""
        return sum(self.shares(length))

    def shares(self, length: int) -> list[float]:
        """Survival s_i by depth. A decision asks for them again and again."""
        version = self._version + self._prior.version
        if version != self._listed_of or length > len(self._listed):
            self._listed = list(accumulate(self.accepted_to(length), operator.mul))
            self._listed_of = version
        return self._listed[:length]

    def accepted_to(self, length: int) -> list[float]:
        known = self._accepted[:length]
        if len(known) < length:
            known += self._prior.accepted_to(length)[len(known) :]
        return known

    def observe(self, draft: Draft, said: Sequence[int]) -> None:
        """Compare a draft with what the target said there, verified or not."""
        self.note(followed(draft, said))

    def note(self, outcomes: Sequence[Outcome]) -> None:
        for depth, outcome in enumerate(outcomes):
            self._note(depth, outcome.right)
        self._prior.note(outcomes)
        self._version += 1  # last: another thread may list the shares meanwhile

    def _note(self, depth: int, right: bool) -> None:
        if depth == len(self._tried):
            accepted = self._prior.accepted(depth)
            self._tried.append(self._weight)
            self._right.append(self._weight * accepted)
            self._accepted.append(accepted)
            self._streaks.append(Streak())
        if self._abrupt and self._streaks[depth].surprises(self._accepted[depth], right):
            self._tried[depth], self._right[depth] = _AFTER_SURPRISE, 0.0
        else:
            self._tried[depth] = self._tried[depth] * self._memory + 1.0
            self._right[depth] = self._right[depth] * self._memory + right
        self._accepted[depth] = self._right[depth] / self._tried[depth]


class Outcome(NamedTuple):
    """A depth of a draft that the target reached: the tokens proposed there, and whether its own
    was among them."""

    siblings: Sequence[int]
    right: bool

    @property
    def first(self) -> int:
        return self.siblings[0]


def followed(draft: Draft, said: Sequence[int]) -> list[Outcome]:
    """By depth, as far as the target followed `draft`: whether its next token was among it."""
    found: list[Outcome] = []
    if draft.parents is None:
        for node, (token, own) in enumerate(zip(draft.tokens, said, strict=False)):
            found.append(Outcome((node,), token == own))
            if token != own:
                break
        return found
    following: dict[int, list[int]] = {}
    for index, parent in enumerate(draft.parents):
        following.setdefault(parent, []).append(index)
    node = -1
    for own in said:
        siblings = following.get(node)
        if siblings is None:
            break
        right = [each for each in siblings if draft.tokens[each] == own]
        found.append(Outcome(siblings, bool(right)))
        if not right:
            break
        node = right[0]
    return found


class Streak:
    """Rejections in a row, and how unlikely they are if what was promised were true."""

    def __init__(self) -> None:
        self._likelihood = 1.0

    def surprises(self, promised: float, right: bool) -> bool:
        """Whether an outcome that was promised with this probability, and those before it, can be
        no chance any more. The row then begins anew."""
        if right:
            self._likelihood = 1.0
            return False
        self._likelihood *= max(_SURPRISE, 1.0 - promised)
        if self._likelihood > _SURPRISE:
            return False
        self._likelihood = 1.0
        return True


def expected_tokens(draft: Draft) -> float:
    """Accepted tokens to expect by the draft's own confidence; without it every token is believed.

    The sum over its tokens of the probability that the path up to them is accepted.
    """
    parents = draft.parents or range(-1, len(draft.tokens) - 1)
    survival: list[float] = []
    for parent, confidence in zip(parents, draft.confidence or (1.0,) * len(parents), strict=True):
        survival.append(confidence if parent < 0 else survival[parent] * confidence)
    return sum(survival)
