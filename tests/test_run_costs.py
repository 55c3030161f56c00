"""What a run costs by its shape, and how runs correct that."""

from __future__ import annotations

import time

import pytest

from gateway.engine.costs.coefficients import Coefficients
from gateway.engine.costs.run_costs import RunCosts
from gateway.engine.costs.shape import Load, RunShape


def row(tokens: int, tree: bool = False) -> RunShape:
    return RunShape(1, tokens, tree=tree)


def widths(costs: RunCosts, *tokens: int) -> list[float]:
    return [costs.predict(row(each)) for each in tokens]


def test_between_measured_widths_it_is_linear() -> None:
    costs = RunCosts.by_width({2: 10.0, 4: 14.0, 8: 18.0})
    assert widths(costs, 2, 3, 4, 6, 8) == [10.0, 12.0, 14.0, 16.0, 18.0]


def test_a_lone_token_is_padded_to_two() -> None:
    costs = RunCosts.by_width({2: 10.0, 4: 14.0})
    assert widths(costs, 1, 2) == [10.0, 10.0]
    longer = RunCosts(Coefficients(((2, 10.0), (4, 14.0)), per_past=0.01, per_work=0.02))
    assert longer.predict(Load(cached=100).run(1)) == longer.predict(Load(cached=100).run(2))


@pytest.mark.parametrize("tokens", [150, 160, 161, 500])
def test_beyond_the_widest_it_goes_on_as_before(tokens: int) -> None:
    costs = RunCosts.by_width({2: 10.0, 4: 14.0})
    assert costs.predict(row(tokens)) == pytest.approx(10.0 + 2.0 * (tokens - 2))


def test_a_single_width_is_flat() -> None:
    assert widths(RunCosts.by_width({2: 10.0}), 1, 5, 300) == [10.0] * 3


def test_noise_never_makes_a_wider_run_cheaper() -> None:
    costs = RunCosts.by_width({2: 10.0, 3: 8.0, 4: 9.0, 8: 20.0})
    predicted = widths(costs, *range(1, 12))
    assert predicted == sorted(predicted)
    assert predicted[:4] == [10.0, 10.0, 10.0, 10.0]


def test_rows_and_what_they_have_cached_add_to_the_width() -> None:
    known = Coefficients(((2, 10.0), (8, 16.0)), per_row=0.5, per_past=0.01, per_work=0.001)
    costs, shape = RunCosts(known), RunShape.of([(100, 3), (50, 5)])
    assert shape == RunShape(rows=2, tokens=8, past=150, work=550)
    assert costs.predict(shape) == pytest.approx(16.0 + 0.5 + 1.5 + 0.55)
    assert known.predict(shape) == pytest.approx(costs.predict(shape))


def test_runs_scale_all_of_it() -> None:
    known = Coefficients(((2, 10.0), (8, 20.0)), per_row=1.0, per_past=0.01)
    costs = RunCosts(known)
    shape = RunShape(2, 4, 100)
    for _ in range(300):
        costs.observe(shape, 2 * known.predict(shape))
    for each in (row(2), row(8), shape):
        assert costs.predict(each) == pytest.approx(2 * known.predict(each), rel=1e-3)
    assert costs.table() == {2: costs.predict(row(2)), 8: costs.predict(row(8))}
    assert costs.corrections().factor == pytest.approx(2.0, rel=1e-3)
    assert costs.corrections().residuals == ((4, pytest.approx(1.0)),)


def test_a_width_that_differs_from_the_others_is_learnt_slowly() -> None:
    costs = RunCosts.by_width({2: 10.0, 32: 40.0})
    narrow, wide = row(2), row(32)
    for _ in range(3000):
        costs.observe(narrow, 10.0)
        costs.observe(wide, 60.0)
    assert costs.predict(narrow) == pytest.approx(10.0, rel=0.05)
    assert costs.predict(wide) == pytest.approx(60.0, rel=0.05)
    factor, residuals, _ = costs.corrections()
    assert [most for most, _ in residuals] == [2, 32]
    assert factor * dict(residuals)[32] == pytest.approx(1.5, rel=0.05)
    assert widths(costs, *range(1, 200)) == sorted(widths(costs, *range(1, 200)))


def test_one_slow_run_counts_for_a_few_at_most() -> None:
    costs = RunCosts.by_width({2: 10.0, 8: 20.0})
    costs.observe(row(2), 1e9)
    # Once for the factor, and a little for the only bucket that was seen.
    assert costs.predict(row(2)) == pytest.approx(10.0 * (1 + 0.05 * 3) * (1 + 0.03 * 3))


def test_prefill_chunks_that_ride_along_are_not_looked_at() -> None:
    costs = RunCosts.by_width({2: 10.0, 8: 20.0})
    costs.observe(row(9), 1000.0)
    assert costs.predict(row(2)) == 10.0


def test_trees_cost_what_chains_do_until_one_was_run() -> None:
    costs = RunCosts.by_width({2: 10.0, 8: 20.0})
    assert costs.predict(row(4, tree=True)) == costs.predict(row(4))


def test_a_surcharge_of_trees_is_learnt_beside_the_curve() -> None:
    costs = RunCosts.by_width({2: 10.0, 8: 20.0})
    for _ in range(200):
        costs.observe(row(8), 40.0)
    chain = costs.predict(row(8))
    for _ in range(200):
        costs.observe(row(8, tree=True), 1.5 * chain)
    assert costs.predict(row(8)) == chain == pytest.approx(40.0, rel=1e-2)
    assert costs.predict(row(2, tree=True)) == pytest.approx(1.5 * costs.predict(row(2)), rel=1e-3)
    assert costs.corrections().tree == pytest.approx(1.5, rel=1e-3)


def test_trees_are_never_cheaper_than_chains() -> None:
    costs = RunCosts.by_width({2: 10.0, 8: 20.0})
    for _ in range(200):
        costs.observe(row(8, tree=True), 15.0)
    assert costs.predict(row(8, tree=True)) == costs.predict(row(8)) == 20.0


def test_a_surcharge_that_nothing_confirms_is_forgotten() -> None:
    """Otherwise a few slow first runs would rule trees out for good."""
    costs = RunCosts.by_width({2: 10.0, 8: 20.0})
    for _ in range(5):
        costs.observe(row(2, tree=True), 100.0)
    assert costs.predict(row(2, tree=True)) > 1.5 * costs.predict(row(2))
    for _ in range(2000):
        costs.observe(row(2), 10.0)
    assert costs.predict(row(2, tree=True)) < 1.02 * costs.predict(row(2))


@pytest.mark.parametrize("others", [[], [(300, 3)] * 3, [(9, 100)] * 2])
@pytest.mark.parametrize("most", [0, 1, 17, 60])
def test_all_widths_of_a_decision_are_had_at_once(others: list[tuple[int, int]], most: int) -> None:
    costs = RunCosts(Coefficients(((2, 10.0), (32, 40.0)), 0.5, 0.001, 0.0001))
    costs.observe(row(8), 30.0)
    load = Load(RunShape.of(others), 500)
    expected = [costs.predict(load.run(own)) for own in range(most + 1)]
    assert costs.by_own_tokens(load, most) == pytest.approx(expected)


def test_a_decision_takes_microseconds() -> None:
    """Some lists of candidates; best of some, on a machine that does other things."""
    costs = RunCosts(Coefficients(((2, 10.0), (32, 40.0)), 0.5, 0.001, 0.0001))
    load = Load(RunShape.of([(300, 3)] * 3), 500)
    best = float("inf")
    for _ in range(100):
        started = time.perf_counter()
        for _ in range(3):
            costs.by_own_tokens(load, 33)
        best = min(best, time.perf_counter() - started)
    assert best < 50e-6
