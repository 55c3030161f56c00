"""The distribution tests can fail: each of these faults makes one of them fail.

Every fault is a small change to the code under test, in a configuration that passes without it
(it is one of those of `test_distribution`) and is judged in the very same way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

import bench.draws
import models.verification
from bench.draws import Configuration, RememberingSampler, judge
from bench.tiny_model import TinyModel, drafter_of
from models.draft import Draft, Proposal
from models.sampling.distribution import Distribution, Draw, TargetRow
from models.sampling.sampler import Sampler
from models.verification import Outcome, Rows, accept
from models.verification.rule import Candidate, Randomness, Rule
from tests.distribution_support import LEAST_P, SAMPLES, configurations, read_model

CUT = ("top-k", "top-p", "min-p")
CHANGED = ("penalties", "bias")


@pytest.fixture(scope="module")
def target(letters_package: Path) -> TinyModel:
    return read_model(letters_package)


@pytest.fixture(scope="module")
def drafter(target: TinyModel) -> TinyModel:
    return drafter_of(target, seed=5)


def resample_from_p(patch: pytest.MonkeyPatch) -> None:
    """A rejected draft is replaced by a token of p instead of the residual."""

    def whole(self: Distribution, _: object) -> Distribution:
        return self

    patch.setattr(Distribution, "minus", whole)
    patch.setattr(Distribution, "without", whole)


def bonus_from_the_wrong_row(patch: pytest.MonkeyPatch) -> None:
    """Behind a draft that is accepted whole the last row is taken for the one before it."""

    class Shifted:
        def __init__(self, rows: Rows, last: int) -> None:
            self.rows, self.last = rows, last

        def row(self, index: int) -> TargetRow:
            return self.rows.row(index - 1 if index == self.last > 0 else index)

    def faulty(draft: Draft, rows: Rows, sampler: Sampler, rule: Rule) -> Outcome:
        return accept(draft, Shifted(rows, len(draft.tokens)), sampler, rule)

    patch.setattr(bench.draws, "accept", faulty)


def off_by_one_at_the_last_rejection(patch: pytest.MonkeyPatch) -> None:
    """openvino.genai#4190: where the last candidate falls, the row behind it is resampled from."""

    def faulty(draft: Draft, rows: Rows, sampler: Sampler, rule: Rule) -> Outcome:
        outcome = accept(draft, rows, sampler, rule)
        last = len(draft.tokens) - 1
        if outcome.accepted != last:
            return outcome
        behind = sampler.distribution(rows.row(last + 1), draft.tokens[:last])
        noise = Randomness(sampler.seed, sampler.position + last).residual()
        return Outcome(outcome.path, behind.draw(noise))

    patch.setattr(bench.draws, "accept", faulty)


def q_unprocessed(patch: pytest.MonkeyPatch) -> None:
    """transformers#47932: acceptance is given the drafter's q before temperature and the rest."""
    original = RememberingSampler.draft

    def faulty(
        self: RememberingSampler, row: TargetRow, ahead: Sequence[int], *, shared: bool
    ) -> tuple[int, Proposal]:
        token, _ = original(self, row, ahead, shared=shared)
        return token, raw_proposal(row)

    patch.setattr(RememberingSampler, "draft", faulty)


def raw_proposal(row: TargetRow) -> Proposal:
    weights = np.exp(row.values.astype(np.float64))
    return Proposal(row.ids, weights / weights.sum())


def penalties_ignore_drafts(patch: pytest.MonkeyPatch) -> None:
    """sglang#33643, #28200: rows behind drafts are penalised as if there were none."""
    original = RememberingSampler.distribution

    def faulty(
        self: RememberingSampler, row: TargetRow, _ahead: Sequence[int] = ()
    ) -> Distribution:
        return original(self, row)

    patch.setattr(RememberingSampler, "distribution", faulty)


def siblings_in_another_order(patch: pytest.MonkeyPatch) -> None:
    """Siblings are tried in an order other than the one in which they were drawn."""
    original: Callable[[Draft, int], list[Candidate]] = models.verification._children

    def faulty(draft: Draft, node: int) -> list[Candidate]:
        return original(draft, node)[::-1]

    patch.setattr(models.verification, "_children", faulty)


def tail_ignored(patch: pytest.MonkeyPatch) -> None:
    """What the host does not see of a row is taken for nothing."""
    original = RememberingSampler.distribution

    def faulty(self: RememberingSampler, row: TargetRow, ahead: Sequence[int] = ()) -> Distribution:
        return original(self, row, ahead).listed()

    patch.setattr(RememberingSampler, "distribution", faulty)


def seed_reused(patch: pytest.MonkeyPatch) -> None:
    """The same numbers for every token of an answer."""

    def token(self: Randomness) -> Draw:
        return Draw(self.seed, 0, original(self).purpose)

    original = Randomness.token
    patch.setattr(Randomness, "token", token)


FAULTS: list[tuple[Callable[[pytest.MonkeyPatch], None], Configuration]] = [
    (resample_from_p, Configuration("classic", False, True, 1.0, CUT)),
    (resample_from_p, Configuration("classic", True, False, 1.0, CUT + CHANGED)),
    (bonus_from_the_wrong_row, Configuration("coupled", False, True, 1.0, CUT)),
    (q_unprocessed, Configuration("classic", False, True, 0.5, CUT)),
    (off_by_one_at_the_last_rejection, Configuration("classic", False, True, 1.0, CUT)),
    (penalties_ignore_drafts, Configuration("coupled", False, True, 1.0, CHANGED)),
    (siblings_in_another_order, Configuration("classic", True, True, 1.0, CUT)),
    (tail_ignored, Configuration("coupled", True, True, 1.5)),
    (seed_reused, Configuration("coupled", False, True, 1.0, CUT)),
]


@pytest.mark.parametrize(
    ("fault", "configuration"), FAULTS, ids=[f"{fault.__name__}-{c.name}" for fault, c in FAULTS]
)
def test_a_fault_fails(
    fault: Callable[[pytest.MonkeyPatch], None],
    configuration: Configuration,
    target: TinyModel,
    drafter: TinyModel,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert configuration in configurations(), "it passes without the fault"
    fault(monkeypatch)
    p, _ = judge(configuration, target, drafter, SAMPLES)
    assert p < LEAST_P
