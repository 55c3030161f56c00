"""One-step acceptance: single drafts at fixed positions, verified many times by the real rules.

At a position of a text that the target sampled, p is what the target draws from there and q what
the drafter draws from. Each trial has a seed of its own: the drafter draws, `accept` verifies. The
positions stay, so the mean of the exact probabilities there is what the rate must come to.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from bench.coupling import Expected, expected
from bench.rows import HostRow, HostRows, host_row
from bench.scoring import Scorer
from models.draft import Draft
from models.drafters.ngram import NgramDrafter
from models.sampling.noise import choice_seed
from models.sampling.parameters import Sampling
from models.sampling.sampler import Sampler
from models.verification import accept, make_rule

Rule = Literal["classic", "coupled"]
RULES: tuple[Rule, ...] = ("classic", "coupled")


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a sampled text: what came before, the target's row there, the window's row."""

    prompt: tuple[int, ...]
    answer: tuple[int, ...]
    target: HostRow
    window: HostRow


@dataclass(slots=True)
class Tally:
    """Of `trials` of one drafter and rule at each position: those accepted, and their expected
    share."""

    trials: int
    accepted: list[int] = field(default_factory=list)
    expected: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return float(np.mean(self.accepted)) / self.trials

    @property
    def expectation(self) -> float:
        return float(np.mean(self.expected))

    @property
    def variance(self) -> float:
        """Of the number accepted in all, given the positions, were `expected` the truth."""
        e = np.array(self.expected)
        return float((e * (1 - e)).sum() * self.trials)

    @property
    def off(self) -> float:
        """The number accepted in all, off its expectation."""
        return float(np.sum(self.accepted) - np.sum(self.expected) * self.trials)

    @property
    def error(self) -> float:
        """Standard error of `rate` given the positions, were `expected` the truth."""
        e = np.array(self.expected)
        return float(np.sqrt((e * (1 - e)).sum() / self.trials) / e.size)

    @property
    def deviation(self) -> float:
        """`rate` off its expectation, in standard errors."""
        off = self.rate - self.expectation
        return off / self.error if self.error > 0 else (0.0 if abs(off) < 1e-12 else np.inf)


class OneStep:
    """Collects trials over positions."""

    def __init__(self, sampling: Sampling, seeds: int) -> None:
        self._sampling = sampling
        self._seeds = seeds
        self._samplings: list[Sampling] = []
        self.bounds: list[Expected] = []
        self.tallies = {
            (drafter, rule): Tally(seeds) for drafter in ("window", "ngram") for rule in RULES
        }

    def _fresh(self) -> list[Sampling]:
        """Seeds that no position had before: noise is keyed by the absolute position, which
        answers to different prompts have in common."""
        begin = len(self.bounds) * self._seeds
        seed = self._sampling.seed or 0
        return [
            replace(self._sampling, seed=choice_seed(seed, begin + index))
            for index in range(self._seeds)
        ]

    def at(self, position: Position) -> None:
        """All trials at `position`."""
        self._samplings = self._fresh()
        p, listed = _distribution(self._sampler(position, self._samplings[0]), position.target)
        q = np.zeros_like(p)
        _, proposal = self._sampler(position, self._samplings[0]).draft(
            position.window, (), shared=False
        )
        q[proposal.ids] = proposal.probabilities
        bounds = expected(p, q, listed)
        self.bounds.append(bounds)
        self._try(position, "window", {"classic": bounds.classic, "coupled": bounds.listed})
        drafter = NgramDrafter()
        drafter.reset((*position.prompt, *position.answer))
        copied = drafter.propose(1).tokens[:1]
        if copied:
            probability = float(p[copied[0]])
            both: dict[Rule, float] = {"classic": probability, "coupled": probability}
            self._try(position, "ngram", both, Draft(copied))

    def _try(
        self,
        position: Position,
        drafter: str,
        expectations: dict[Rule, float],
        fixed: Draft | None = None,
    ) -> None:
        rows = HostRows((position.target, position.target))
        for name, probability in expectations.items():
            accepted = 0
            for sampling in self._samplings:
                sampler = self._sampler(position, sampling)
                draft = fixed or _sampled(sampler, position.window, shared=name == "coupled")
                accepted += accept(draft, rows, sampler, make_rule(name)).accepted
            tally = self.tallies[drafter, name]
            tally.accepted.append(accepted)
            tally.expected.append(probability)

    def _sampler(self, position: Position, sampling: Sampling) -> Sampler:
        sampler = Sampler(sampling, position.prompt)
        sampler.commit(position.answer)
        return sampler


def _sampled(sampler: Sampler, row: HostRow, *, shared: bool) -> Draft:
    token, proposal = sampler.draft(row, (), shared=shared)
    return Draft((token,), proposals=(proposal,))


def _distribution(
    sampler: Sampler, row: HostRow
) -> tuple[
    np.ndarray[tuple[int], np.dtype[np.float64]], np.ndarray[tuple[int], np.dtype[np.bool_]]
]:
    """p [V], and which tokens have noise of their own [V]."""
    distribution = sampler.distribution(row)
    distribution.resolve()
    listed = np.zeros(row.vocab_size, dtype=np.bool_)
    listed[distribution.ids] = True
    return distribution.dense(row.vocab_size), listed


def positions(
    scorer: Scorer,
    texts: Sequence[tuple[tuple[int, ...], tuple[int, ...]]],
    count: int,
    window: int,
    top_k: int,
) -> Iterable[Position]:
    """At most `count` positions, spread evenly over the answers of `texts` (prompt, answer)."""
    places = [
        (index, place) for index, (_, answer) in enumerate(texts) for place in range(len(answer))
    ]
    chosen = [places[at * len(places) // count] for at in range(count)] if places else []
    chosen = places if count >= len(places) else chosen
    for index, (prompt, answer) in enumerate(texts):
        here = [place for text, place in chosen if text == index]
        if not here:
            continue
        ids = (*prompt, *answer[:-1])
        rows = scorer.logits(ids, len(answer))
        windows = scorer.behind([(*prompt, *answer[:place])[-window:] for place in here])
        for place, seen in zip(here, windows, strict=True):
            yield Position(
                prompt, answer[:place], host_row(rows[place], top_k), host_row(seen, top_k)
            )
