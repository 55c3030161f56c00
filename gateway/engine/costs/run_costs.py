"""What a target run costs by its shape: calibrated at start-up, corrected by every run."""

from __future__ import annotations

import operator
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import NamedTuple

from gateway.engine.costs.coefficients import Coefficients
from gateway.engine.costs.limits import UNLIMITED, RunLimits
from gateway.engine.costs.overhead import RoundOverhead
from gateway.engine.costs.shape import Load, RunShape
from models.rows import LEAST_WIDTH

_CORRECTION = 0.05
"""Weight of one run in the running correction."""

_SLOW = 0.03
"""The same for how runs of about one width differ from the others."""

_OBLIVION = 0.002
"""What each chain run takes off the surcharge of trees, so that they are tried again in time."""

_WORST = 4.0
"""How many times what was expected a run counts for at most: noise is no measurement."""

_LISTED = 160
"""Runs of up to so many tokens are looked up."""

BUCKETS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128)
"""The most tokens of each bucket of widths but the last, which holds all wider runs."""


class Corrections(NamedTuple):
    """`factor` of all runs; `residuals` of the buckets that were seen, by their most tokens (0: the
    widest); `tree`, the surcharge of trees."""

    factor: float
    residuals: tuple[tuple[int, float], ...]
    tree: float


class RunCosts:
    """Milliseconds of a target run by its shape.

    `coefficients` are the calibration's; `observe` scales all of it, since a busier machine makes
    everything dearer, and more slowly each bucket of widths. Ratios of two shapes are what
    decisions use. A run that verifies a tree pays a surcharge, known from such runs alone.
    `overhead` is what a round takes beside its runs; `limits` how wide runs may get.
    """

    def __init__(self, coefficients: Coefficients, limits: RunLimits = UNLIMITED) -> None:
        self.coefficients = coefficients
        self.limits = limits
        self.overhead = RoundOverhead()
        self._bucket = [bisect_left(BUCKETS, tokens) for tokens in range(_LISTED + 1)]
        self._widths = [coefficients.width(tokens) for tokens in range(_LISTED + 1)]
        self._ends = [coefficients.width(most) for most in BUCKETS]
        self._factor = 1.0
        self._residuals = [1.0] * (len(BUCKETS) + 1)
        self._seen = [0.0] * (len(BUCKETS) + 1)
        self._surcharge = 1.0
        self._listed_load: Load | None = None
        self._listed: list[float] = []
        self._apply()

    @classmethod
    def by_width(cls, measured: Mapping[int, float]) -> RunCosts:
        """Of milliseconds by tokens alone."""
        return cls(Coefficients.by_width(measured))

    def predict(self, shape: RunShape) -> float:
        """Expected milliseconds of the run."""
        rows, tokens, past, work, tree = shape
        cost = self._width(tokens)
        cost += self._per_row * (rows - 1) + self._per_past * past + self._per_work * work
        return cost * self.surcharge if tree else cost

    def by_own_tokens(self, load: Load, most: int) -> list[float]:
        """`predict(load.run(tokens))` for 0 to `most` tokens of the request's own row: a decision
        compares many."""
        if load == self._listed_load and most < len(self._listed):
            return self._listed[: most + 1]
        self._listed_load, self._listed = load, self._by_own_tokens(load, most)
        return self._listed

    def _by_own_tokens(self, load: Load, most: int) -> list[float]:
        (rows, tokens, past, work, tree), cached = load
        if tree or tokens + most > _LISTED:
            return [self.predict(load.run(own)) for own in range(most + 1)]
        slope = self._per_work * cached
        rest = self._per_row * rows + self._per_past * (past + cached) + self._per_work * work
        scales, floors, costs = self._scales, self._floors, list[float]()
        widths = self._widths[tokens : tokens + most + 1]
        for ms, bucket in zip(widths, self._bucket[tokens:], strict=False):
            ms, floor = ms * scales[bucket], floors[bucket]
            costs.append((ms if ms > floor else floor) + rest)
            rest += slope
        for own in range(min(LEAST_WIDTH, most + 1)):
            costs[own] += slope * (LEAST_WIDTH - own)
        return costs

    def growing(self, base: RunShape, behind: Iterable[int]) -> Iterator[float]:
        """Milliseconds of a chain run of `base` and the first 0, 1, ... more tokens; the attention
        of each reads so many cached ones."""
        rows, tokens, past, work, _ = base
        rest = self._per_row * (rows - 1) + self._per_past * past + self._per_work * work
        per_work = self._per_work
        yield self._width(tokens) + rest
        for width, each in enumerate(behind, start=tokens + 1):
            rest += per_work * each
            yield self._width(width) + rest

    @property
    def surcharge(self) -> float:
        """How many times a chain's cost a tree of as many tokens costs."""
        return max(1.0, self._surcharge)

    def observe(self, shape: RunShape, milliseconds: float) -> None:
        """Correct what is known by a run that took `milliseconds`."""
        if shape.tokens > self.coefficients.curve[-1][0]:
            return  # wider than anything measured: a prefill chunk rode along
        chain = self.predict(shape._replace(tree=False) if shape.tree else shape)
        ratio = min(milliseconds / chain, _WORST)
        if shape.tree:
            self._surcharge += _CORRECTION * (ratio - self._surcharge)
            self._listed_load = None
            return
        self._factor *= 1 + _CORRECTION * (ratio - 1)
        self._surcharge += _OBLIVION * (1.0 - self._surcharge)
        self._correct_bucket(bisect_left(BUCKETS, shape.tokens), ratio)
        self._apply()

    def table(self) -> dict[int, float]:
        """The curve in force, for one row without a past."""
        return {tokens: self.predict(RunShape(1, tokens)) for tokens, _ in self.coefficients.curve}

    def corrections(self) -> Corrections:
        residuals = zip((*BUCKETS, 0), self._residuals, self._seen, strict=True)
        seen = tuple((most, residual) for most, residual, weight in residuals if weight)
        return Corrections(self._factor, seen, self.surcharge)

    def _correct_bucket(self, bucket: int, ratio: float) -> None:
        """What all buckets that were seen have in common goes into the factor."""
        self._seen = seen = [weight * (1 - _SLOW) for weight in self._seen]
        seen[bucket] += _SLOW
        residuals = self._residuals
        residuals[bucket] *= 1 + _SLOW * (ratio - 1)
        common = sum(map(operator.mul, seen, residuals)) / sum(seen)
        self._factor *= common
        self._residuals = [
            residual / common if weight else residual
            for residual, weight in zip(residuals, seen, strict=True)
        ]

    def _apply(self) -> None:
        self._listed_load = None
        factor = self._factor
        self._scales = [factor * residual for residual in self._residuals]
        # Nor may a correction make a wider run look cheaper than one of a narrower bucket.
        ends = map(operator.mul, self._ends, self._scales)
        self._floors = list(accumulate(ends, max, initial=0.0))
        self._per_row = self._factor * self.coefficients.per_row
        self._per_past = self._factor * self.coefficients.per_past
        self._per_work = self._factor * self.coefficients.per_work

    def _width(self, tokens: int) -> float:
        if tokens > _LISTED:
            return self._wide(tokens)
        bucket = self._bucket[tokens]
        ms, floor = self._widths[tokens] * self._scales[bucket], self._floors[bucket]
        return ms if ms > floor else floor

    def _wide(self, tokens: int) -> float:
        more = self.coefficients.width(tokens) - self._widths[_LISTED]
        return self._width(_LISTED) + self._scales[-1] * more
