"""Percentiles and the bootstrap over prompts."""

from __future__ import annotations

import numpy as np
import pytest

from bench.run.statistics import median_interval, percentiles, ratio_interval, ratio_of_means

PAIRS = [(4.0, 10.0), (6.0, 11.0), (9.0, 9.0), (3.0, 12.0)]


def test_percentiles_are_linear_between_neighbours() -> None:
    assert percentiles([4.0, 1.0, 2.0, 3.0], (0, 50, 90, 100)) == pytest.approx([1, 2.5, 3.7, 4])
    assert percentiles([7.0], (5, 99)) == [7.0, 7.0]


def test_a_ratio_is_of_means_not_a_mean_of_ratios() -> None:
    assert ratio_of_means(PAIRS) == pytest.approx(22 / 42)


def test_the_interval_is_that_of_resampled_prompts() -> None:
    """The same draws, one at a time."""
    drawn = np.random.default_rng(3).integers(0, 4, (200, 4))
    ratios = sorted(
        sum(PAIRS[i][0] for i in row) / sum(PAIRS[i][1] for i in row) for row in drawn.tolist()
    )
    # of 200 values the 2.5 % and 97.5 % quantiles lie at 4.975 and 194.025
    low = ratios[4] + 0.975 * (ratios[5] - ratios[4])
    high = ratios[194] + 0.025 * (ratios[195] - ratios[194])
    assert ratio_interval(PAIRS, 3, 200) == pytest.approx((low, high))


def test_the_same_seed_gives_the_same_bounds() -> None:
    assert ratio_interval(PAIRS, 0) == ratio_interval(PAIRS, 0)
    assert ratio_interval(PAIRS, 0, 100) != ratio_interval(PAIRS, 1, 100)


def test_bounds_of_a_fixed_sample() -> None:
    low, high = ratio_interval(PAIRS, 0)
    assert (low, high) == pytest.approx((0.3181818181818182, 0.8378378378378378), abs=1e-9)


def test_prompts_with_one_ratio_have_no_spread() -> None:
    """Paired: what makes a prompt slow in both settings cancels."""
    assert ratio_interval([(5.0, 10.0), (50.0, 100.0), (1.0, 2.0)], 0) == (0.5, 0.5)


def test_the_bounds_of_a_median_hold_it_and_one_far_value_does_not_move_them() -> None:
    values = [1.0, 1.01, 1.02, 1.03, 1.04, 1.05, 1.06, 9.0]
    low, high = median_interval(values, 3)
    assert 1.0 <= low < 1.035 < high <= 1.06
    assert median_interval([2.0, 2.0], 0) == (2.0, 2.0)
