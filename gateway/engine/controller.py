"""How many draft tokens a round verifies."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.engine.costs import RunCosts
from gateway.engine.requests import Speculation

LONGEST_DRAFT = 16
"""Draft tokens per round at most, where a request does not say."""

_LEAST_GAIN = 1.03
"""A draft that makes the run dearer must promise this much, so that noise never decides for it."""


class Controller:
    """Chooses draft lengths for one request.

    `auto` maximises expected tokens per millisecond, E[tau] / T(width), from the drafter's
    confidence in each token and the measured cost of a run; plain decoding (length 0) is one of
    the candidates. `fixed` always asks for the same length, `off` for none.
    """

    def __init__(self, speculation: Speculation, costs: RunCosts) -> None:
        self._policy = speculation.policy if speculation.drafter != "off" else "off"
        self._costs = costs
        self._limit = LONGEST_DRAFT if speculation.length is None else speculation.length

    @property
    def policy(self) -> str:
        return self._policy

    def budget(self, room: int) -> int:
        """Draft tokens to ask the drafter for when `room` fit into the answer and the slot."""
        return 0 if self._policy == "off" else max(0, min(self._limit, room))

    def length(self, confidence: Sequence[float], others: int) -> int:
        """How many of the proposed tokens to verify.

        `confidence[i]` is the probability that token i is accepted given its predecessors;
        `others` the tokens that share the run.
        """
        if self._policy != "auto":
            return len(confidence)
        plain = self._costs.predict(others + 1)
        best, best_gain = 0, 1.0
        survival, expected = 1.0, 1.0
        for index, probability in enumerate(confidence):
            survival *= probability
            expected += survival
            cost = self._costs.predict(others + 2 + index)
            gain = expected * plain / cost
            # A lone token is padded to a run of two: the first draft token of a stream that is
            # alone is free, and needs no margin.
            if gain > best_gain and (cost <= plain or gain >= _LEAST_GAIN):
                best, best_gain = index + 1, gain
        return best
