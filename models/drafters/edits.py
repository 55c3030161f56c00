"""How likely a prediction goes on being right, by where in it the answer is and since when."""

from __future__ import annotations

from collections.abc import Sequence

OPENING, EARLY, RUNNING = 0, 2, 3
_SECOND, _FOUND = 1, 4
_LONGEST_FOUND = 3
# The share of tokens that are as predicted, as it is believed before there are outcomes, and how
# many outcomes that belief is worth. A place that one token was found by is chance more often than
# not; what came as predicted for some tokens goes on for many. Of some such tables this one cost
# least beside wrong predictions, on a 135M model's answers to the tasks of `bench prediction`.
_PRIORS = (
    (0.7, 2.0),
    (0.55, 4.0),
    (0.85, 6.0),
    (0.97, 12.0),
    *((0.15, 3.0), (0.35, 3.0), (0.60, 3.0)),
    *((0.08, 3.0), (0.20, 3.0), (0.40, 3.0)),
)
_EARLY_UNTIL = 5
_MEMORY = 0.97


def stage(since: int, found: int, *, disputed: bool) -> int:
    """Of a token `since` tokens behind where a place was found, by a match of `found` tokens, which
    are none where the answer begins. `disputed`: other matches as good go on in another way."""
    if since >= _EARLY_UNTIL:
        return RUNNING
    if since > 1:
        return EARLY
    if found == 0:
        return OPENING
    if since == 1:
        return _SECOND
    return _FOUND + min(found, _LONGEST_FOUND) - 1 + _LONGEST_FOUND * disputed


class EditConfidence:
    """One answer's shares of tokens that were as predicted, by stage: the recent ones count most.

    How far apart edits are, and how often a place is the right one, differs from answer to answer
    more than anything that could be known beforehand.
    """

    def __init__(self) -> None:
        self._right = [share * weight for share, weight in _PRIORS]
        self._tried = [weight for _, weight in _PRIORS]

    def estimates(self, stages: Sequence[int]) -> tuple[float, ...]:
        """Per token of a draft: the probability that it is right, given that all before are."""
        return tuple([self._right[each] / self._tried[each] for each in stages])

    def observe(self, stage: int, right: bool) -> None:
        self._right[stage] = self._right[stage] * _MEMORY + right
        self._tried[stage] = self._tried[stage] * _MEMORY + 1.0
