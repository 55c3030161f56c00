"""Calibration: from what a drafter says to what becomes of it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from models.drafters.calibration import Curve, rising

GRID = [index / 200 for index in range(201)]


def test_without_outcomes_a_drafter_is_believed() -> None:
    curve = Curve()
    assert [round(curve.estimate(p), 2) for p in (0.1, 0.3, 0.5, 0.8, 0.95)] == [
        0.1,
        0.3,
        0.5,
        0.8,
        0.95,
    ]
    assert 0 < curve.estimate(0.0) < 0.01
    assert 0.98 < curve.estimate(1.0) < 1


@pytest.mark.parametrize("truth", [lambda p: p**2, lambda p: p**0.5, lambda p: 0.1 + 0.5 * p])
def test_a_curve_is_learnt_from_outcomes(truth: object) -> None:
    curve, random = Curve(), np.random.default_rng(0)
    for probability in random.uniform(0, 1, 6000).tolist():
        curve.observe(probability, 0, random.uniform() < truth(probability))  # type: ignore[operator]
    for probability in (0.1, 0.3, 0.5, 0.7, 0.9):
        assert abs(curve.estimate(probability) - truth(probability)) < 0.08  # type: ignore[operator]


def test_a_curve_rises_whatever_happens() -> None:
    curve, random = Curve((0.7, 0.4)), np.random.default_rng(1)
    for _ in range(100):
        curve.observe(random.uniform(), int(random.integers(5)), bool(random.integers(2)))
        for depth in range(5):
            values = [curve.estimate(probability, depth) for probability in GRID]
            assert all(low <= high + 1e-12 for low, high in itertools.pairwise(values))
            assert values[0] > 0
            assert values[-1] < 1


def test_what_was_measured_at_export_shifts_deeper_tokens() -> None:
    """Survival 0.8, 0.4, 0.1: of the tokens reached 0.8, 0.5 and 0.25 were accepted."""
    curve = Curve((0.8, 0.4, 0.1))
    assert curve.estimate(0.8, 0) == pytest.approx(0.8, abs=0.02)
    assert curve.estimate(0.8, 1) == pytest.approx(0.5, abs=0.03)
    assert curve.estimate(0.8, 2) == pytest.approx(0.25, abs=0.03)
    assert curve.estimate(0.8, 9) == curve.estimate(0.8, 3) == curve.estimate(0.8, 2)
    assert Curve((0.5, 0.0)).estimate(0.5, 3) > 0


def test_depths_are_learnt_apart() -> None:
    curve, random = Curve(), np.random.default_rng(2)
    for _ in range(3000):
        curve.observe(0.6, 0, random.uniform() < 0.7)
        curve.observe(0.6, 2, random.uniform() < 0.3)
    assert abs(curve.estimate(0.6, 0) - 0.7) < 0.08
    assert abs(curve.estimate(0.6, 2) - 0.3) < 0.08


def test_recent_outcomes_count_most() -> None:
    curve = Curve()
    for accepted in (False, True):
        for _ in range(6000):
            curve.observe(0.5, 0, accepted)
    assert curve.estimate(0.5) > 0.9


def test_neighbours_that_fall_are_pooled() -> None:
    assert rising([1, 3, 2, 9], [10, 10, 10, 10]) == pytest.approx([0.1, 0.25, 0.25, 0.9])
    assert rising([9, 1, 5], [10, 10, 10]) == pytest.approx([0.5, 0.5, 0.5])
    assert rising([8, 0], [10, 30]) == pytest.approx([0.2, 0.2])


def test_a_whole_draft_is_judged_as_its_tokens_are() -> None:
    curve = Curve((0.8, 0.4, 0.1))
    curve.observe(0.5, 0, True)  # estimates follow at once
    probabilities = [0.0, 0.004, 0.2, 0.5, 0.9996, 1.0, 1e-9, 0.93]
    fresh = curve.estimates(probabilities)
    assert list(fresh) == [curve.estimate(p, depth) for depth, p in enumerate(probabilities)]


@pytest.mark.parametrize("survival", [(), (0.8, 0.4, 0.1), (0.3, 0.27, 0.26, 0.255)])
def test_depth_shifts_the_odds_of_what_is_possible(survival: tuple[float, ...]) -> None:
    """Nothing is certain, so that the odds of the surest token fall with depth as others' do."""
    curve = Curve(survival)
    before = (1.0, *survival)
    shares = [now / earlier for now, earlier in zip(survival, before, strict=False)]
    for probability in (0.0, 4e-5, 0.001, 0.3, 0.7, 0.9996, 1.0):
        sure = curve.estimate(probability, 0)
        for depth, share in enumerate(shares):
            first = shares[0] / (1 - shares[0])
            odds = sure / (1 - sure) * (share / (1 - share)) / first
            expected = min(0.998, max(0.002, odds / (1 + odds)))
            assert curve.estimate(probability, depth) == pytest.approx(expected)
