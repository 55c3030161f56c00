"""How far the token that a reference drew was ahead of the one that another answer has.

All margins are in the target's logits. Greedily the token of the largest logit is taken, after
penalties; otherwise that of the largest logit + temperature x Gumbel variate (the coupled rule),
among those that top-k, top-p and min-p keep. A margin is what has to change between two logits for
the other token to be drawn: because it overtakes, or because either crosses the edge of what is
kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bench.rows import host_row
from gateway.engine.engine import Engine
from models.sampling.noise import INSIDE_TAIL, TAIL, Purpose, exponentials, uniform
from models.sampling.parameters import Sampling
from models.sampling.sampler import Sampler
from models.target import Row

Floats = NDArray[np.float64]


class Margins:
    """Looks into differences on an engine that does nothing else meanwhile."""

    def __init__(self, engine: Engine, sampling: Sampling) -> None:
        self._engine = engine
        self._sampling = sampling
        self._known: dict[tuple[tuple[int, ...], tuple[int, ...]], Scores] = {}

    async def between(
        self,
        prompt: tuple[int, ...],
        answer: tuple[int, ...],
        expected: int | None,
        found: int | None,
    ) -> float | None:
        """The margin of `expected` over `found` behind `prompt` and `answer`.

        None is an end-of-sequence token; where both answers end there is no margin.
        """
        if expected is None and found is None:
            return None
        key = (prompt, answer)
        if key not in self._known:
            logits = await self._logits((*prompt, *answer))
            top_k = self._engine.package.manifest.target.top_k
            self._known[key] = score(logits, top_k, self._sampling, prompt, answer)
        scores = self._known[key]
        first, second = (self._token(token, scores) for token in (expected, found))
        return scores.margin(first, second)

    def forget(self) -> None:
        self._known.clear()

    def _token(self, token: int | None, scores: Scores) -> int:
        if token is not None:
            return token
        endings = sorted(self._engine.eos_ids)
        return max(endings, key=lambda ending: scores.values[ending])

    async def _logits(self, tokens: tuple[int, ...]) -> NDArray[np.float32]:
        """The whole row [V] behind `tokens`."""
        lease = await self._engine.acquire(tokens, reuse_prefix=False)
        try:
            row = Row(lease.slot, tokens, logits=1)
            verified = await self._engine.service.prefill(row, self._engine.next_order())
            return verified.result.whole(0).copy()
        finally:
            self._engine.release(lease.slot)


@dataclass(frozen=True, slots=True)
class Scores:
    """What decides the draw behind one token, per token of the vocabulary [V], in logits.

    The largest of `values` is drawn. `inside` is how far a token is from the edge of what is kept
    (negative: it is not). `listing` is how far it is from joining or leaving the tail, whose noise
    is another; `picked` how far a token of the tail is from being the one that stands for it.
    """

    values: Floats
    inside: Floats
    listing: Floats
    picked: Floats

    def margin(self, expected: int, found: int) -> float:
        values, inside = self.values, self.inside
        hidden = max(0.0, -float(inside[found]), float(self.picked[found]))
        overtaken = max(abs(float(values[expected] - values[found])), hidden)
        others = np.where(inside > 0, values, -np.inf)
        others[expected] = -np.inf
        behind = max(0.0, float(others.max() - values[found]))
        dropped = max(float(inside[expected]), behind, hidden)
        relisted = float(min(self.listing[expected], self.listing[found]))
        return min(overtaken, dropped, relisted)


def score(
    logits: NDArray[np.float32],
    top_k: int,
    sampling: Sampling,
    prompt: Sequence[int],
    answer: Sequence[int],
) -> Scores:
    """Of a whole row of logits [V], of which the graph lists `top_k`."""
    processed = penalised(logits, sampling, prompt, answer)
    everywhere = np.full(logits.size, np.inf)
    if sampling.greedy:
        return Scores(processed, everywhere, everywhere, np.zeros(logits.size))
    inside = distance_inside(processed, sampling)
    sampler = Sampler(sampling, prompt)
    sampler.commit(answer)
    distribution = sampler.distribution(host_row(logits, top_k))
    distribution.resolve()
    tail = inside > 0
    tail[distribution.ids] = False
    position = len(prompt) + len(answer)
    arrival = exponentials(
        sampler.seed, position, Purpose.TOKEN, np.append(np.arange(logits.size), TAIL)
    )
    values = processed - sampling.temperature * np.log(arrival[:-1])
    if not tail.any():
        return Scores(values, inside, everywhere, np.zeros(logits.size))
    scaled = np.where(tail, processed / sampling.temperature, -np.inf)
    largest = scaled.max()
    mass = np.exp(scaled - largest)
    together = sampling.temperature * (largest + np.log(mass.sum()) - np.log(arrival[-1]))
    values[tail] = together
    u = uniform(sampler.seed, position, Purpose.TOKEN, INSIDE_TAIL)
    picked = np.where(tail, sampling.temperature * _distance_to_pick(mass, u), 0.0)
    falling = np.sort(logits)[::-1].astype(np.float64)
    listing = np.where(tail, falling[top_k - 1] - logits, logits - falling[top_k])
    return Scores(values, inside, np.abs(listing), picked)


def penalised(
    logits: NDArray[np.float32], sampling: Sampling, prompt: Sequence[int], answer: Sequence[int]
) -> Floats:
    """Logits [V] after penalties and bias."""
    changed = logits.astype(np.float64)
    counts = np.bincount(np.array(answer, dtype=np.int64), minlength=logits.size)
    seen = counts > 0
    if prompt:
        seen[np.array(prompt)] = True
    factor = np.where(changed > 0, 1 / sampling.repetition_penalty, sampling.repetition_penalty)
    changed[seen] *= factor[seen]
    changed -= sampling.presence_penalty * (counts > 0) + sampling.frequency_penalty * counts
    for token, bias in sampling.logit_bias:
        changed[token] += bias
    return changed


def distance_inside(processed: Floats, sampling: Sampling) -> Floats:
    """[V]: how far a token is from the edge of what top-k, top-p and min-p keep, in logits."""
    order = np.argsort(-processed, kind="stable")
    scaled = processed[order] / sampling.temperature
    distance = np.full(scaled.size, np.inf)
    kept = scaled.size
    if 0 < sampling.top_k < scaled.size:
        kept = sampling.top_k
        distance[:kept] = np.maximum(scaled[:kept] - scaled[kept], np.finfo(np.float64).tiny)
        distance[kept:] = scaled[kept:] - scaled[kept - 1]
    if sampling.top_p < 1:
        weights = np.exp(scaled[:kept] - scaled[0])
        passed = (np.cumsum(weights) - weights) / weights.sum()
        edge = _log_odds(np.array(max(sampling.top_p, 1e-12))) - _log_odds(passed)
        distance[:kept] = np.minimum(distance[:kept], edge)
    if sampling.min_p > 0:
        distance = np.minimum(distance, scaled - scaled[0] - np.log(sampling.min_p))
    result = np.empty_like(distance)
    result[order] = distance * sampling.temperature
    return result


def _distance_to_pick(mass: Floats, u: float) -> Floats:
    """How far u (log-odds) is from the interval of each token among `mass` [V]; 0 inside it."""
    end = np.cumsum(mass) / mass.sum()
    begin = np.append(0.0, end[:-1])
    at = _log_odds(np.array(u))
    distance: Floats = np.maximum(0.0, np.maximum(_log_odds(begin) - at, at - _log_odds(end)))
    return distance


def _log_odds(share: Floats) -> Floats:
    """-inf at 0, inf at 1. Moving all logits on one side by d against the rest moves it by d."""
    with np.errstate(divide="ignore"):
        odds: Floats = np.log(share) - np.log1p(-np.minimum(share, 1.0))
    return odds
