"""Counts and histograms of an engine's answers, as plain numbers.

They are written between rounds and read when somebody scrapes: so a round costs some additions, and
what a metric is called is decided elsewhere.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate

from gateway.engine.observer import RoundSeen

WAITS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
FIRST_TOKENS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
NEXT_TOKENS = (
    *(0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05),
    *(0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5),
)
WHOLE_REQUESTS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0)
ROUNDS = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.02, 0.03),
    *(0.05, 0.075, 0.1, 0.25, 0.5, 1.0),
)
"""Upper ends of buckets, in seconds."""


class Histogram:
    """Observations by the first of `bounds` that they do not exceed."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.sum = 0.0
        self._counts = [0] * (len(self.bounds) + 1)

    def observe(self, value: float, times: int = 1) -> None:
        self._counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times

    @property
    def count(self) -> int:
        return sum(self._counts)

    def cumulative(self) -> list[int]:
        """Observations up to each bound, and last all of them."""
        return list(accumulate(self._counts))


class EngineTallies:
    """An observer of an engine (gateway.engine.observer)."""

    def __init__(self) -> None:
        self.drafts = 0
        self.draft_tokens = 0
        self.accepted_tokens = 0
        self.accepted_at: list[int] = []
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.generated_tokens = 0
        self.rounds: Counter[tuple[str, str]] = Counter()
        self.endings: Counter[str] = Counter()
        self.queue = Histogram(WAITS)
        self.first = Histogram(FIRST_TOKENS)
        self.next = Histogram(NEXT_TOKENS)
        self.whole = Histogram(WHOLE_REQUESTS)
        self.draft = Histogram(ROUNDS)
        self.verify = Histogram(ROUNDS)
        self.overhead = Histogram(ROUNDS)

    def started(self, waited: float, prompt_tokens: int, cached_tokens: int) -> None:
        self.queue.observe(waited)
        self.prompt_tokens += prompt_tokens
        self.cached_tokens += cached_tokens

    def first_token(self, seconds: float) -> None:
        self.first.observe(seconds)
        self.generated_tokens += 1

    def more_tokens(self, count: int, seconds: float) -> None:
        """Tokens that come together share the time since those before."""
        self.next.observe(seconds / count, count)
        self.generated_tokens += count

    def round(self, seen: RoundSeen) -> None:
        self.rounds[seen.policy, seen.drafter] += 1
        self.draft.observe(seen.draft)
        self.verify.observe(seen.verify)
        self.overhead.observe(seen.overhead)
        if not seen.verified:
            return
        self.drafts += 1
        self.draft_tokens += seen.verified
        self.accepted_tokens += seen.accepted
        self.accepted_at += [0] * (seen.accepted - len(self.accepted_at))
        for depth in range(seen.accepted):
            self.accepted_at[depth] += 1

    def ended(self, reason: str, seconds: float) -> None:
        self.endings[reason] += 1
        self.whole.observe(seconds)
