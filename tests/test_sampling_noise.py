"""Random numbers as a function: uniform, independent, the same for ever."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from bench.goodness import p_value
from models.sampling.noise import (
    INSIDE_TAIL,
    TAIL,
    Purpose,
    choice_seed,
    exponentials,
    uniform,
    uniforms,
)
from models.sampling.parameters import LEAST_SEED, MOST_SEED, SEED_BITS

COUNT = 20_000
LEAST_P = 1e-4
TOKENS = np.arange(COUNT)
Series = NDArray[np.float64]


def over_tokens(seed: int = 0, position: int = 0, purpose: Purpose = Purpose.TOKEN) -> Series:
    return uniforms(seed, position, purpose, TOKENS)


def over(number: Callable[[int], float]) -> Series:
    return np.array([number(index) for index in range(COUNT)])


SERIES: dict[str, Callable[[], Series]] = {
    "tokens": over_tokens,
    "tokens of another seed": lambda: over_tokens(seed=1),
    "tokens of a negative seed": lambda: over_tokens(seed=-1),
    "tokens of another position": lambda: over_tokens(position=1),
    "tokens of another purpose": lambda: over_tokens(purpose=Purpose.RESIDUAL),
    "seeds": lambda: over(lambda index: uniform(index, 5, Purpose.TOKEN, 3)),
    "positions": lambda: over(lambda index: uniform(7, index, Purpose.TOKEN, 3)),
    "positions of the next token": lambda: over(lambda index: uniform(7, index, Purpose.TOKEN, 4)),
    "acceptance": lambda: over(lambda index: uniform(7, index, Purpose.ACCEPT, 0)),
    "the next sibling": lambda: over(lambda index: uniform(7, index, Purpose.ACCEPT, 1)),
    "the tail": lambda: over(lambda index: uniform(7, index, Purpose.TOKEN, TAIL)),
    "inside the tail": lambda: over(lambda index: uniform(7, index, Purpose.TOKEN, INSIDE_TAIL)),
    "choices": lambda: over(lambda index: uniform(choice_seed(7, index), 5, Purpose.TOKEN, 3)),
    "seeds and positions that add up": lambda: over(
        lambda index: uniform(index, COUNT - index, Purpose.TOKEN, 3)
    ),
}


@pytest.fixture(scope="module")
def series() -> dict[str, Series]:
    return {name: make() for name, make in SERIES.items()}


@pytest.mark.parametrize("name", SERIES)
def test_numbers_are_uniform(name: str, series: dict[str, Series]) -> None:
    numbers = series[name]
    assert (numbers > 0).all()
    assert (numbers <= 1).all()
    counts = np.histogram(numbers, bins=100, range=(0, 1))[0]
    assert p_value(counts, np.full(100, 0.01)) > LEAST_P


@pytest.mark.parametrize("name", SERIES)
def test_neighbours_are_independent(name: str, series: dict[str, Series]) -> None:
    for step in (1, 2, 64):
        assert is_independent(series[name][:-step], series[name][step:])


def test_different_series_are_independent(series: dict[str, Series]) -> None:
    for first, second in itertools.combinations(SERIES, 2):
        assert is_independent(series[first], series[second]), (first, second)


def test_purposes_are_independent() -> None:
    numbers = [over_tokens(purpose=purpose) for purpose in Purpose]
    for first, second in itertools.combinations(numbers, 2):
        assert is_independent(first, second)


def is_independent(first: Series, second: Series) -> bool:
    """By correlation, within five standard deviations, and by the joint distribution."""
    size = first.size
    correlation = float(np.corrcoef(first, second)[0, 1])
    cells = np.histogram2d(first, second, bins=8, range=[[0, 1], [0, 1]])[0].astype(np.int64)
    return abs(correlation) < 5 / size**0.5 and p_value(cells, np.full((8, 8), 1 / 64)) > LEAST_P


@pytest.mark.parametrize("seed", [0, 1, -1, LEAST_SEED, MOST_SEED, 123_456_789_012])
@pytest.mark.parametrize("position", [0, 1, 4095, 10**6])
@pytest.mark.parametrize("purpose", list(Purpose))
def test_one_number_is_that_of_the_array(seed: int, position: int, purpose: Purpose) -> None:
    tokens = np.array([0, 1, 49_151, 151_935, 2**31, TAIL, INSIDE_TAIL])
    numbers = uniforms(seed, position, purpose, tokens)
    assert numbers.dtype == np.float64
    assert numbers.tolist() == [uniform(seed, position, purpose, t) for t in tokens.tolist()]


@pytest.mark.parametrize(
    ("seed", "position", "purpose", "token", "expected"),
    [
        (0, 0, Purpose.TOKEN, 0, 0.6524484863740323),
        (7, 42, Purpose.TOKEN, 49_151, 0.8096277842853141),
        (7, 42, Purpose.ACCEPT, 0, 0.7577292550753691),
        (7, 42, Purpose.RESIDUAL, TAIL, 0.8922988727822248),
        (-3, 1000, Purpose.DRAFT, INSIDE_TAIL, 0.004918690872086184),
    ],
)
def test_answers_of_a_seed_do_not_change_between_versions(
    seed: int, position: int, purpose: Purpose, token: int, expected: float
) -> None:
    assert uniform(seed, position, purpose, token) == expected


def test_every_part_of_the_key_counts() -> None:
    keys = itertools.product((0, 1, -1), (0, 1, 2), Purpose, (0, 1, TAIL, INSIDE_TAIL))
    numbers = [uniform(*key) for key in keys]
    assert len(set(numbers)) == len(numbers) == 3 * 3 * 4 * 4


@pytest.mark.parametrize("size", [3, 64])
def test_the_first_to_arrive_is_drawn_by_weight(size: int) -> None:
    """argmin(E / w) draws w, whether few numbers are made or many."""
    weights = np.random.default_rng(0).dirichlet(np.ones(size))
    first = [
        int((exponentials(seed, 0, Purpose.TOKEN, np.arange(size)) / weights).argmin())
        for seed in range(COUNT)
    ]
    assert p_value(np.bincount(first, minlength=size), weights) > LEAST_P


def test_few_exponentials_are_those_of_many() -> None:
    many = exponentials(5, 6, Purpose.TOKEN, np.arange(-2, 500))
    assert many == pytest.approx(-np.log(uniforms(5, 6, Purpose.TOKEN, np.arange(-2, 500))))
    for size in range(1, 20):
        few = exponentials(5, 6, Purpose.TOKEN, np.arange(-2, -2 + size))
        assert few == pytest.approx(many[:size], rel=1e-15)


def test_choices_have_seeds_of_their_own() -> None:
    for seed in (0, 7, -7, LEAST_SEED, MOST_SEED):
        seeds = [choice_seed(seed, choice) for choice in range(128)]
        assert seeds[0] == seed
        assert len(set(seeds)) == 128
        assert all(0 <= later < 1 << SEED_BITS for later in seeds[1:])
