"""Processing on the listed tokens equals processing of the whole row."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bench.rows import HostRow
from models.sampling.distribution import Draw
from models.sampling.noise import Purpose
from models.sampling.parameters import Sampling
from models.sampling.sampler import Sampler
from tests.sampling_support import given, naive

RANDOM_CASES = 600


def random_sampling(random: np.random.Generator, vocab_size: int) -> Sampling:
    def one_of(*values: float) -> float:
        return float(random.choice(values))

    biased = int(random.integers(0, 3))
    return Sampling(
        temperature=one_of(0.3, 0.7, 1, 1.5, 2),
        top_k=int(one_of(0, 0, 3, 10, 30)),
        top_p=one_of(1, 1, 0.893, 0.517),
        min_p=one_of(0, 0, 0.1, 0.01),
        repetition_penalty=one_of(1, 1, 1.3, 0.8),
        presence_penalty=one_of(0, 0, 0.5, -0.5),
        frequency_penalty=one_of(0, 0.3, -0.3),
        logit_bias=tuple(
            (int(random.integers(vocab_size)), float(random.normal() * 3)) for _ in range(biased)
        ),
        min_tokens=int(one_of(0, 0, 5)),
        seed=int(random.integers(1 << 40)),
    )


class Case:
    """A random row, request and history."""

    def __init__(self, random: np.random.Generator) -> None:
        size = int(random.integers(5, 200))
        logits = random.normal(size=size) * random.choice([0.3, 1, 3, 6])
        if random.random() < 0.2:
            logits = np.round(logits)  # ties
        self.row = given(logits, listed=int(random.integers(2, 20)))
        self.sampling = random_sampling(random, size)
        self.prompt = random.integers(0, size, 5).tolist()
        self.answer = random.integers(0, size, 4).tolist()
        self.ahead = random.integers(0, size, int(random.integers(0, 3))).tolist()
        self.endings = random.integers(0, size, 2).tolist()

    def sampler(self) -> Sampler:
        sampler = Sampler(self.sampling, self.prompt, self.endings)
        sampler.commit(self.answer)
        return sampler

    def expected(self) -> np.ndarray:
        said = [*self.answer, *self.ahead]
        forbidden = self.endings if len(said) < self.sampling.min_tokens else ()
        return naive(self.row.logits, self.sampling, self.prompt, said, forbidden)


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    random = np.random.default_rng(0)
    return [Case(random) for _ in range(RANDOM_CASES)]


def test_every_step_equals_the_naive_processing_of_the_whole_row(cases: list[Case]) -> None:
    for case in cases:
        found = case.sampler().distribution(case.row, case.ahead).dense(case.row.vocab_size)
        assert found == pytest.approx(case.expected(), abs=2e-6), case.sampling


def test_bounds_hold_before_the_row_is_opened(cases: list[Case]) -> None:
    undecided = 0
    for case in cases:
        distribution = case.sampler().distribution(case.row, case.ahead)
        before = [distribution.weight(token) for token in range(case.row.vocab_size)]
        least, most = distribution.least, distribution.most
        undecided += not distribution.exact
        distribution.resolve()
        total = distribution.most
        assert least <= total * (1 + 1e-5), case.sampling
        assert most >= total * (1 - 1e-5), case.sampling
        for token, (low, high) in enumerate(before):
            weight = distribution.weight(token)[0]
            assert low <= weight * (1 + 1e-5) + 1e-12
            assert high >= weight * (1 - 1e-5) - 1e-12
    assert undecided > RANDOM_CASES / 4, "the cases exercise the bounds"


def test_a_draw_decided_by_bounds_is_the_draw_from_the_whole_row(cases: list[Case]) -> None:
    unopened = 0
    for case in cases:
        sampler = case.sampler()
        for position in range(4):
            noise = Draw(sampler.seed, position, Purpose.TOKEN)
            lazy = sampler.distribution(case.row, case.ahead)
            opened_before = sampler.opened
            token = lazy.draw(noise)
            unopened += sampler.opened == opened_before
            whole = sampler.distribution(case.row, case.ahead)
            whole.resolve()
            assert token == whole.draw(noise)
            assert case.expected()[token] > 0
    assert unopened > 2 * RANDOM_CASES, "most draws need no whole row"


def test_acceptance_decided_by_bounds_is_that_of_the_whole_row(cases: list[Case]) -> None:
    for case in cases[:150]:
        p = case.expected()
        for token in range(0, case.row.vocab_size, 17):
            for u in (0.02, 0.3, 1.0):
                if abs(p[token] - u * 0.5) < 1e-5:
                    continue
                lazy = case.sampler().distribution(case.row, case.ahead)
                assert lazy.accepts(token, u, q=0.5) == (u * 0.5 <= p[token])


def test_a_peaked_row_is_never_opened() -> None:
    logits = np.zeros(50_000)
    logits[:8] = [30, 29, 28, 27, 26, 25, 24, 23]
    sampler = Sampler(Sampling(temperature=0.8, top_p=0.95, seed=1), prompt=[1])
    for position in range(200):
        sampler.distribution(given(logits, 64)).draw(Draw(1, position, Purpose.TOKEN))
    assert sampler.opened == 0


def test_greedy_takes_the_lowest_of_equal_ids() -> None:
    row = given([1.0, 5.0, 5.0, 5.0, 0.0], listed=2)
    sampler = Sampler(Sampling(), prompt=[0])
    assert sampler.distribution(row).draw(Draw(0, 1, Purpose.TOKEN)) == 1


@pytest.mark.parametrize(
    ("sampling", "expected"),
    [
        (Sampling(), 3),
        (Sampling(repetition_penalty=4.0), 0),
        (Sampling(presence_penalty=1.6), 0),
        (Sampling(frequency_penalty=0.8), 0),
        (Sampling(frequency_penalty=0.7), 3),
        (Sampling(logit_bias=((5, 4.0),)), 5),
        (Sampling(logit_bias=((3, -2.0),)), 0),
        (Sampling(min_tokens=3), 0),
        (Sampling(min_tokens=2), 3),
    ],
)
def test_greedy_with_processing_of_single_logits(sampling: Sampling, expected: int) -> None:
    """Two threes were said; three also ends the answer."""
    row = given([1.5, 1.0, 0.5, 3.0, 0.0, -0.5], listed=2)
    sampler = Sampler(sampling, prompt=[1], endings=[3])
    sampler.commit([3, 3])
    assert sampler.distribution(row).draw(Draw(0, 3, Purpose.TOKEN)) == expected


def test_greedy_with_penalties_takes_the_most_likely_of_the_whole_row() -> None:
    random = np.random.default_rng(11)
    opened = 0
    for _ in range(2000):
        size, listed = int(random.integers(5, 60)), int(random.integers(2, 12))
        logits = random.normal(size=size) * 3
        if random.random() < 0.5:
            logits = np.round(logits)  # ties, and zeros that a factor leaves as they are
        sampling = Sampling(
            repetition_penalty=float(random.choice([1.0, 1.05, 2.0])),
            presence_penalty=float(random.choice([0.0, 1.0])),
            frequency_penalty=float(random.choice([0.0, 0.5])),
        )
        prompt, answer, ahead = (random.integers(0, size, count).tolist() for count in (4, 6, 2))
        row = given(logits, listed)
        sampler = Sampler(sampling, prompt)
        sampler.commit(answer)
        changed = row.logits.astype(np.float64)
        for token in {*prompt, *answer, *ahead}:
            factor = sampling.repetition_penalty
            changed[token] *= factor if changed[token] <= 0 else 1 / factor
        for token in {*answer, *ahead}:
            changed[token] -= sampling.presence_penalty
            changed[token] -= sampling.frequency_penalty * [*answer, *ahead].count(token)
        taken = sampler.distribution(row, ahead).draw(Draw(0, 1, Purpose.TOKEN))
        best = changed.max()
        # Divided and multiplied differ in the last bit.
        assert taken == np.flatnonzero(changed >= best - 1e-9)[0]
        fallen = set(row.ids.tolist()) <= {*prompt, *answer, *ahead}
        assert sampler.opened <= fallen
        opened += sampler.opened
    assert opened, "some rows have no listed token that stays"


def test_greedy_opens_the_row_when_every_listed_token_fell_below_the_others() -> None:
    row = given([5.0, 4.9, 1.0, 2.0, 0.0], listed=2)
    sampler = Sampler(Sampling(logit_bias=((0, -9.0), (1, -9.0))), prompt=[0])
    assert sampler.distribution(row).draw(Draw(0, 1, Purpose.TOKEN)) == 3
    assert sampler.opened == 1


def test_drafts_ahead_count_for_their_row_and_leave_no_trace() -> None:
    """sglang#33643, vllm#33251: each token counts once, at every row behind it, and only there."""
    row = given([3.0, 2.9, 0.0, 0.0], listed=2)
    sampler = Sampler(Sampling(frequency_penalty=0.06), prompt=[0])
    draw = Draw(0, 1, Purpose.TOKEN)
    assert sampler.distribution(row).draw(draw) == 0
    assert sampler.distribution(row, ahead=[0]).draw(draw) == 0
    assert sampler.distribution(row, ahead=[0, 0]).draw(draw) == 1
    assert sampler.distribution(row).draw(draw) == 0
    sampler.commit([0])
    assert sampler.distribution(row, ahead=[0]).draw(draw) == 1
    assert sampler.distribution(row).draw(draw) == 0


def test_a_whole_row_is_not_written_to() -> None:
    row = given(np.linspace(0, 1, 40), listed=3)
    before = row.logits.copy()
    sampling = Sampling(temperature=1, top_p=0.7, top_k=20, repetition_penalty=1.5, seed=3)
    Sampler(sampling, prompt=[1, 2]).distribution(row).resolve()
    assert np.array_equal(row.logits, before)


def test_temperatures_that_overflow_nothing() -> None:
    logits = np.array([500.0, -500.0, 0.0, 499.0, -800.0, 2.0])
    for temperature in (1e-5, 0.01, 2.0):
        sampling = Sampling(temperature=temperature, seed=1)
        distribution = Sampler(sampling, prompt=[0]).distribution(given(logits, 2))
        found = distribution.dense(6)
        assert found == pytest.approx(naive(logits, sampling), abs=1e-6)


@pytest.mark.parametrize("offset", [-1000.0, -300.0, 0.0, 300.0, 1000.0])
def test_bounds_hold_where_the_log_sum_exp_is_rounded_coarsely(offset: float) -> None:
    random = np.random.default_rng(5)
    for temperature in (1e-5, 0.5, 1.0, 2.0):
        for spread in (0.0, 1e-4, 1.0):
            row = given(offset + spread * random.normal(size=2000) + np.eye(1, 2000)[0], listed=4)
            distribution = Sampler(Sampling(temperature, seed=1), prompt=[1]).distribution(row)
            least, most = distribution.least, distribution.most
            distribution.resolve()
            total = distribution.most
            assert least * (1 - 1e-6) <= total <= most * (1 + 1e-6)


def added_up_in_float32(row: HostRow) -> HostRow:
    """Its log-sum-exp is further off than a graph's: float32, one term after the other."""
    terms = np.exp(row.logits - row.logits.max())
    total = np.cumsum(terms, dtype=np.float32)[-1]
    return replace(row, logsumexp=float(row.logits.max() + np.log(total)))


def test_bounds_hold_where_a_large_vocabulary_is_added_up_in_float32() -> None:
    random, furthest = np.random.default_rng(2), 0.0
    for scale in (0.01, 3.0, 6.0):
        logits = (scale * random.normal(size=151_936)).astype(np.float32)
        row = added_up_in_float32(given(logits, 64))
        furthest = max(furthest, abs(row.logsumexp - given(logits).logsumexp))
        distribution = Sampler(Sampling(1.0, seed=1), prompt=[1]).distribution(row)
        least, most = distribution.least, distribution.most
        distribution.resolve()
        assert least <= distribution.most <= most
    assert furthest > 1e-4, "the cases are about rounding"
