"""What a drafter's run costs by its length."""

from __future__ import annotations

import pytest

from gateway.engine.costs.draft_costs import DraftCosts


def test_between_and_beyond_what_was_measured_it_is_linear() -> None:
    costs = DraftCosts({1: 1.0, 3: 2.0, 5: 4.0})
    assert [costs.predict(n) for n in (1, 2, 3, 4, 5, 7)] == [1.0, 1.5, 2.0, 3.0, 4.0, 6.0]


def test_every_run_costs_its_call() -> None:
    assert DraftCosts({4: 2.0}).predict(1) == 2.0
    assert DraftCosts({2: 2.0, 4: 3.0}).predict(1) == 2.0


def test_nothing_is_known_before_the_first_run() -> None:
    costs = DraftCosts()
    assert (costs.predict(3), costs.table()) == (0.0, {})
    costs.observe(3, 5.0)
    assert (costs.predict(3), costs.predict(1), costs.table()) == (5.0, 5.0, {3: 5.0})


def test_runs_move_the_whole_curve_slowly() -> None:
    costs = DraftCosts({1: 1.0, 3: 3.0})
    costs.observe(1, 1.4)
    assert costs.predict(1) == pytest.approx(1 + 0.05 * 0.4)
    assert costs.predict(3) == pytest.approx(3 * (1 + 0.05 * 0.4))
    for _ in range(100):
        costs.observe(3, 6.0)
    assert costs.predict(3) == pytest.approx(6.0, rel=1e-3)
    assert costs.table() == {1: costs.predict(1), 3: costs.predict(3)}


def test_a_drafter_that_became_slow_is_believed_at_once() -> None:
    costs = DraftCosts({1: 1.0})
    costs.observe(1, 5.0)
    assert costs.predict(1) == pytest.approx(3.0)
    costs.observe(1, 5.0)
    assert costs.predict(1) == pytest.approx(4.0)


def test_what_is_a_little_off_twice_is_no_chance() -> None:
    costs = DraftCosts({1: 1.0})
    costs.observe(1, 1.4)
    assert costs.predict(1) == pytest.approx(1.02)
    costs.observe(1, 1.4)
    assert costs.predict(1) == pytest.approx(1.02 + 0.5 * 0.38)
    costs = DraftCosts({1: 1.0})
    costs.observe(1, 0.7)
    assert costs.predict(1) == pytest.approx(0.985)
    costs.observe(1, 0.7)
    assert costs.predict(1) == pytest.approx(0.985 - 0.8 * 0.285)


def test_one_that_was_only_held_up_is_believed_again() -> None:
    """A machine that slept for minutes is no measurement; the next run says what it costs."""
    costs = DraftCosts({1: 1.0})
    costs.observe(1, 1e6)
    assert costs.predict(1) == pytest.approx(8.5)
    costs.observe(1, 1.0)
    assert costs.predict(1) == pytest.approx(2.5)
    costs.observe(1, 1.0)
    assert costs.predict(1) == pytest.approx(1.3)
