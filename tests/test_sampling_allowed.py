"""Rows of which only some tokens are allowed: processed as if the others did not exist."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from models.constraints.allowed import Allowed
from models.sampling import processing
from models.sampling.distribution import Draw
from models.sampling.noise import Purpose
from models.sampling.parameters import Sampling
from models.sampling.sampler import Sampler
from tests.sampling_support import given, naive
from tests.test_sampling_processing import random_sampling

RANDOM_CASES = 500


class FixedGuidance:
    """Allows the same tokens everywhere, and counts how often all of them were asked for."""

    def __init__(self, flags: NDArray[np.bool_], only: int | None = None) -> None:
        self.flags = flags
        self.forced = only
        self.asked = 0
        self.committed: list[int] = []

    def only(self, ahead: Sequence[int] = ()) -> int | None:
        return self.forced

    def allows(self, token: int, ahead: Sequence[int] = ()) -> bool:
        return bool(self.flags[token])

    def allowed(self, ahead: Sequence[int] = ()) -> Allowed:
        self.asked += 1
        return Allowed(self.flags)

    def commit(self, tokens: Sequence[int]) -> None:
        self.committed += tokens


class Case:
    """A random row and request, and a random part of the vocabulary."""

    def __init__(self, random: np.random.Generator) -> None:
        size = int(random.integers(5, 200))
        logits = random.normal(size=size) * random.choice([0.3, 1, 3, 6])
        self.row = given(logits, listed=int(random.integers(2, 20)))
        self.sampling = random_sampling(random, size)
        self.prompt = random.integers(0, size, 5).tolist()
        self.answer = random.integers(0, size, 4).tolist()
        self.flags = random.random(size) < random.choice([0.1, 0.5, 0.95])
        self.flags[random.integers(size)] = True

    def sampler(self) -> Sampler:
        sampler = Sampler(self.sampling, self.prompt, (), FixedGuidance(self.flags))
        sampler.commit(self.answer)
        return sampler

    def expected(self) -> np.ndarray:
        forbidden = np.flatnonzero(~self.flags).tolist()
        return naive(self.row.logits, self.sampling, self.prompt, self.answer, forbidden)


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    random = np.random.default_rng(3)
    return [Case(random) for _ in range(RANDOM_CASES)]


@pytest.fixture(params=[0, 1024], ids=["listed", "few"])
def _few(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways: by the tokens that the graph listed, and by all that are allowed."""
    monkeypatch.setattr(processing, "_FEW", request.param)


@pytest.mark.usefixtures("_few")
def test_every_step_equals_the_naive_processing_of_the_whole_row(cases: list[Case]) -> None:
    for case in cases:
        found = case.sampler().distribution(case.row).dense(case.row.vocab_size)
        assert found == pytest.approx(case.expected(), abs=2e-6), case.sampling
        assert not found[~case.flags].any()


@pytest.mark.usefixtures("_few")
def test_a_draw_decided_by_bounds_is_the_draw_from_the_whole_row(cases: list[Case]) -> None:
    for case in cases:
        sampler = case.sampler()
        for position in range(3):
            noise = Draw(sampler.seed, position, Purpose.TOKEN)
            token = sampler.distribution(case.row).draw(noise)
            whole = sampler.distribution(case.row)
            whole.resolve()
            assert token == whole.draw(noise)
            assert case.expected()[token] > 0


@pytest.mark.usefixtures("_few")
def test_greedy_takes_the_likeliest_that_is_allowed(cases: list[Case]) -> None:
    for case in cases:
        guidance = FixedGuidance(case.flags)
        sampler = Sampler(Sampling(), case.prompt, (), guidance)
        token = sampler.distribution(case.row).draw(Draw(0, 0, Purpose.TOKEN))
        allowed = np.where(case.flags, case.row.logits, -np.inf)
        assert token == int(allowed.argmax())
        assert guidance.asked == (not case.flags[case.row.ids[0]])


def test_a_token_that_must_come_comes() -> None:
    guidance = FixedGuidance(np.ones(6, dtype=np.bool_), only=4)
    for sampling in (Sampling(), Sampling(temperature=1.5, top_p=0.1, seed=2)):
        sampler = Sampler(sampling, [1], (), guidance)
        distribution = sampler.distribution(given(np.arange(6.0)[::-1], 3))
        assert distribution.draw(Draw(2, 1, Purpose.TOKEN)) == 4
        assert (distribution.probability(4), distribution.probability(0)) == (1, 0)
    assert guidance.asked == 0


def test_what_is_committed_is_told_to_the_guidance() -> None:
    guidance = FixedGuidance(np.ones(6, dtype=np.bool_))
    Sampler(Sampling(), [1], (), guidance).commit([4, 5])
    assert guidance.committed == [4, 5]


def test_bits_are_read_lowest_first() -> None:
    allowed = Allowed.of_bits(bytes([0b0000_0101, 0b1000_0000, 0xFF, 0xFF]), vocab_size=17)
    assert allowed.ids.tolist() == [0, 2, 15, 16]
    assert allowed.count == 4
    assert allowed.flags.dtype == np.bool_
