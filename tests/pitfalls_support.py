"""Helpers for tests of what other engines got wrong: references that share no code with ours."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from models.draft import Draft
from models.package import Package
from models.providers import select_provider
from models.sampling.parameters import Sampling
from models.sampling.sampler import Sampler
from models.target import Row, Target
from tests.engine_support import CONTEXT, DenseRow, DenseRows, ScriptedDrafter
from tests.sampling_support import naive

Logits = NDArray[np.float32]


class PlainRows:
    """The target's logits behind any tokens: prefilled whole, alone, remembered."""

    def __init__(self, package: Package) -> None:
        self._target = Target(package, select_provider("cpu", package.manifest.target.device))
        (self._slot,) = self._target.make_slots(1, CONTEXT)
        self._known: dict[tuple[int, ...], Logits] = {}

    def behind(self, tokens: Sequence[int]) -> Logits:
        key = tuple(tokens)
        if key not in self._known:
            (result,) = self._target.run([Row(self._slot, key, logits=1)])
            self._known[key] = result.whole(0).copy()
        return self._known[key]

    def probabilities(
        self, prompt: Sequence[int], answer: Sequence[int], sampling: Sampling
    ) -> NDArray[np.float64]:
        """[V] of what comes behind `answer`, each step of the processing written out."""
        if sampling.temperature == 0:
            sampling = dataclasses.replace(sampling, temperature=1.0)
        return naive(self.behind((*prompt, *answer)), sampling, prompt, answer)

    def likeliest(self, prompt: Sequence[int], count: int, sampling: Sampling) -> list[int]:
        """The answer of `count` tokens that takes the most probable one every time."""
        answer: list[int] = []
        while len(answer) < count:
            answer.append(int(self.probabilities(prompt, answer, sampling).argmax()))
        return answer


class SteadyTarget:
    """Has the same logits behind every token."""

    def __init__(self, logits: Logits) -> None:
        self._row = DenseRow(logits)

    def run(self, rows: Sequence[Row]) -> list[DenseRows]:
        return [DenseRows([self._row] * row.logits) for row in rows]


class Stubborn(ScriptedDrafter):
    """Proposes the same tokens every time, whatever was said."""

    def propose(self, budget: int) -> Draft:
        self.budgets.append(budget)
        return Draft(tokens=tuple(self._script[:budget]), source=self.name)


class SamplingDrafter:
    """Draws its tokens from rows of its own: the target's, shifted by noise keyed by the token.

    A real draft model in all but its weights: it follows the committed tokens, and draws with
    `Sampler.draft`. `drafts` are those that it made.
    """

    name = "sampling"

    def __init__(
        self, rows: PlainRows, sampling: Sampling, shift: float = 0.8, shared: bool = False
    ) -> None:
        self._rows = rows
        self._sampling = sampling
        self._shift = shift
        self._shared = shared
        self.drafts: list[Draft] = []

    def reset(self, tokens: Sequence[int]) -> None:
        self._tokens = tuple(tokens)
        self._sampler = Sampler(self._sampling, tokens)

    def commit(self, tokens: Sequence[int]) -> None:
        self._tokens += tuple(tokens)
        self._sampler.commit(tokens)

    def propose(self, budget: int) -> Draft:
        ahead: tuple[int, ...] = ()
        proposals = []
        for _ in range(budget):
            row = DenseRow(self.logits_behind((*self._tokens, *ahead)))
            token, proposal = self._sampler.draft(row, ahead, shared=self._shared)
            ahead += (token,)
            proposals.append(proposal)
        self.drafts.append(Draft(ahead, proposals=tuple(proposals), source=self.name))
        return self.drafts[-1]

    def logits_behind(self, tokens: tuple[int, ...]) -> Logits:
        noise = np.random.default_rng(tokens[-1]).normal(0, self._shift, 4096)
        target = self._rows.behind(tokens)
        return target + noise[: target.size].astype(np.float32)
