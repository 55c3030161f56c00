"""How far a drafter's confidence in its own tokens is to be believed, by one request's outcomes."""

from __future__ import annotations

from collections.abc import Sequence

from models.draft import Draft
from models.drafters.survival import Streak, followed

_WEIGHT = 8.0
"""Outcomes that the belief in a drafter is worth before there are any."""

_MEMORY = 0.97
_MARGIN = 1.15
"""Fewer accepted tokens than were promised by less than this are chance."""

_BETRAYED = 0.1
_LEAST = 0.02


class Trust:
    """Factors on confidences by drafter, 1 at most.

    What was accepted is compared with what the confidences promised, as far as the target followed
    a draft, verified or not. A row of first tokens that were all wrong although they were promised
    is no chance: the factor falls at once, and doubles with every first token that is right.
    """

    def __init__(self) -> None:
        self._sources: dict[str, _Source] = {}

    def factor(self, source: str) -> float:
        found = self._sources.get(source)
        return 1.0 if found is None else found.factor

    def observe(self, draft: Draft, said: Sequence[int]) -> None:
        if draft.confidence is None:
            return
        for depth, outcome in enumerate(followed(draft, said)):
            source = self._sources.setdefault(draft.source_of(outcome.first), _Source())
            promised = min(1.0, sum(draft.confidence[node] for node in outcome.siblings))
            source.note(promised, outcome.right, first=depth == 0)

    def believed(self, draft: Draft) -> Sequence[float]:
        """The draft's confidences, as far as they are to be believed; where it has none, 1."""
        confidence = draft.confidence
        if confidence is None:
            return [1.0] * len(draft.tokens)
        if not self._sources:
            return confidence
        if draft.sources is None:
            factor = self.factor(draft.source)
            return confidence if factor == 1.0 else [factor * each for each in confidence]
        factors = {source: self.factor(source) for source in set(draft.sources)}
        pairs = zip(confidence, draft.sources, strict=True)
        return [factors[source] * each for each, source in pairs]


class _Source:
    """What is known of one drafter."""

    def __init__(self) -> None:
        self._promised = self._right = _WEIGHT
        self._streak = Streak()
        self._betrayal = 1.0

    @property
    def factor(self) -> float:
        return min(1.0, _MARGIN * self._right / self._promised) * self._betrayal

    def note(self, promised: float, right: bool, *, first: bool) -> None:
        self._promised = self._faded(self._promised) + promised
        self._right = self._faded(self._right) + right
        if not first:
            return
        if right:
            self._betrayal = min(1.0, 2 * self._betrayal)
        if self._streak.surprises(promised * self._betrayal, right):
            self._betrayal = max(_LEAST, _BETRAYED * self._betrayal)

    def _faded(self, value: float) -> float:
        """Towards the weight of the belief, which never fades."""
        return _WEIGHT + _MEMORY * (value - _WEIGHT)
