"""What a run costs by width."""

from __future__ import annotations

import pytest

from gateway.engine.costs import RunCosts


def test_between_measured_widths_the_cost_is_linear() -> None:
    costs = RunCosts({2: 10.0, 4: 14.0, 8: 18.0})
    assert [costs.predict(width) for width in (2, 3, 4, 6, 8)] == [10.0, 12.0, 14.0, 16.0, 18.0]


def test_no_run_is_narrower_than_the_least_measured() -> None:
    assert RunCosts({2: 10.0, 4: 14.0}).predict(1) == 10.0


def test_beyond_the_widest_the_last_slope_goes_on() -> None:
    assert RunCosts({2: 10.0, 4: 14.0, 8: 18.0}).predict(12) == 22.0


def test_noise_never_makes_a_wider_run_cheaper() -> None:
    costs = RunCosts({2: 10.0, 3: 8.0, 4: 9.0, 8: 20.0})
    predicted = [costs.predict(width) for width in range(1, 12)]
    assert predicted == sorted(predicted)
    assert predicted[3] == 10.0


def test_observations_scale_the_whole_curve() -> None:
    costs = RunCosts({2: 10.0, 8: 20.0})
    for _ in range(200):
        costs.observe(4, 2 * (10.0 + 20.0 / 6))
    assert costs.predict(2) == pytest.approx(20.0, rel=1e-3)
    assert costs.predict(8) == pytest.approx(40.0, rel=1e-3)
    assert costs.table() == {2: costs.predict(2), 8: costs.predict(8)}


def test_one_observation_moves_it_a_little_however_odd_it_is() -> None:
    costs = RunCosts({2: 10.0, 8: 20.0})
    costs.observe(2, 1e9)
    assert costs.predict(2) == pytest.approx(10.0 * (1 + 0.05 * 3))


def test_a_run_with_a_prefill_chunk_says_nothing_about_decoding() -> None:
    costs = RunCosts({2: 10.0, 8: 20.0})
    costs.observe(9, 1000.0)
    assert costs.predict(2) == 10.0


def test_trees_cost_what_chains_do_until_one_was_run() -> None:
    costs = RunCosts({2: 10.0, 8: 20.0})
    assert costs.predict(4, tree=True) == costs.predict(4)


def test_the_surcharge_of_trees_is_known_from_their_runs_alone() -> None:
    costs = RunCosts({2: 10.0, 8: 20.0})
    for _ in range(100):
        costs.observe(8, 40.0)
    chain = costs.predict(8)
    for _ in range(200):
        costs.observe(8, 1.5 * chain, tree=True)
    assert costs.predict(8) == chain == pytest.approx(40.0, rel=1e-2)
    assert costs.predict(2, tree=True) == pytest.approx(1.5 * costs.predict(2), rel=1e-3)


def test_noise_never_makes_a_tree_look_cheaper_than_a_chain() -> None:
    costs = RunCosts({2: 10.0, 8: 20.0})
    for _ in range(100):
        costs.observe(8, 15.0, tree=True)
    assert costs.predict(8, tree=True) == costs.predict(8) == 20.0


def test_a_surcharge_that_nothing_confirms_is_forgotten() -> None:
    """Otherwise a few slow first runs would rule trees out for good."""
    costs = RunCosts({2: 10.0, 8: 20.0})
    for _ in range(5):
        costs.observe(2, 100.0, tree=True)
    assert costs.predict(2, tree=True) > 1.5 * costs.predict(2)
    for _ in range(2000):
        costs.observe(2, 10.0)
    assert costs.predict(2, tree=True) < 1.02 * costs.predict(2)
