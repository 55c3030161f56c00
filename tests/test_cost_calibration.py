"""Calibration: coefficients are found again from runs that follow them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from gateway.engine.costs.calibration import Calibration, calibrate, check_points, pasts
from gateway.engine.costs.coefficients import Coefficients, fit, relative_errors
from gateway.engine.costs.shape import RunShape
from models.package import Package
from models.providers import select_provider
from models.slots import Slot
from models.target import Row, Target

TRUTH = Coefficients(((2, 10.0), (8, 16.0), (32, 30.0)), 0.7, 0.002, 0.0003)


class FakeMachine:
    """Runs take what `truth` says, on a clock of its own; the first of a shape three times that."""

    def __init__(self, truth: Coefficients, most_rows: int = 4) -> None:
        self.truth = truth
        self.most_rows = most_rows
        self.now = 0.0
        self.shapes: list[RunShape] = []

    def clock(self) -> float:
        return self.now

    def run(self, rows: Sequence[Row]) -> Any:
        shape = RunShape.of((row.past, len(row.tokens)) for row in rows)
        warm = shape in self.shapes
        self.shapes.append(shape)
        self.now += self.truth.predict(shape) / 1e3 * (1 if warm else 3)


def empty_slots(count: int, context: int) -> list[Slot]:
    return [Slot(index, context, []) for index in range(count)]


@pytest.mark.parametrize(("rows", "slots"), [(4, 4), (8, 2), (1, 4)])
def test_it_finds_the_coefficients_of_the_machine(rows: int, slots: int) -> None:
    machine, free = FakeMachine(TRUTH, rows), empty_slots(slots, 4096)
    found = calibrate(machine, free, machine.clock).coefficients()
    assert all(slot.length == 0 for slot in free)
    expected = dict(TRUTH.curve)
    assert {at: ms for at, ms in found.curve if at in expected} == pytest.approx(expected)
    assert found.per_past == pytest.approx(TRUTH.per_past)
    assert found.per_work == pytest.approx(TRUTH.per_work)
    most = min(rows, slots)
    assert found.per_row == pytest.approx(TRUTH.per_row if most > 1 else 0.0)
    assert max(shape.rows for shape in machine.shapes) == most


def test_it_says_how_well_it_predicts_runs_that_were_not_fitted() -> None:
    machine = FakeMachine(TRUTH)
    calibration = calibrate(machine, empty_slots(4, 4096), machine.clock)
    fitted = {shape for shape, _ in calibration.points}
    assert calibration.checks
    assert fitted.isdisjoint(shape for shape, _ in calibration.checks)
    assert calibration.errors() == pytest.approx([0.0] * len(calibration.checks), abs=1e-9)
    wrong = Calibration(calibration.points, ((RunShape(1, 2), 20.0),))
    assert wrong.errors() == pytest.approx([-0.5])


def test_it_takes_about_two_seconds_or_two_rounds() -> None:
    quick, slow = FakeMachine(TRUTH), FakeMachine(Coefficients(((2, 1000.0), (32, 1200.0))))
    calibrate(quick, empty_slots(4, 4096), quick.clock)
    assert quick.now < 4.0
    calibrate(slow, empty_slots(4, 4096), slow.clock)
    assert len(slow.shapes) == 2 * len(set(slow.shapes))


def test_a_short_context_is_not_exceeded() -> None:
    machine = FakeMachine(TRUTH, most_rows=1)
    calibration = calibrate(machine, empty_slots(1, 16), machine.clock)
    assert pasts(empty_slots(1, 16)) == (4, 8)
    assert max(past + tokens for _, tokens, past, *_ in machine.shapes) <= 16 + 8
    assert calibration.coefficients().curve[0] == (2, pytest.approx(10.0))


def test_two_points_are_checked_quickly() -> None:
    machine = FakeMachine(TRUTH)
    points = check_points(machine, empty_slots(2, 4096), machine.clock)
    assert [shape.tokens for shape, _ in points] == [2, 16]
    assert relative_errors(TRUTH, points) == pytest.approx([0.0, 0.0])


def test_no_coefficient_is_below_zero() -> None:
    """Where noise says that more rows, or more that is cached, are cheaper."""
    points = [
        (RunShape(1, 2, 32, 64), 10.0),
        (RunShape(1, 16, 32, 512), 9.0),
        (RunShape(1, 2, 1000, 2000), 9.0),
        (RunShape(1, 16, 1000, 16000), 8.0),
        (RunShape(2, 4, 64, 128), 7.0),
    ]
    assert fit(points) == Coefficients(((2, 10.0), (16, 10.0)), 0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("narrow_ms", "wide_ms", "per_past", "per_work"),
    [
        (12.0, 12.0, 0.002, 0.0),
        (12.0, 10.0, 0.001, 0.0),
        (10.0, 16.0, 0.0, 6 * 16000 / (2000**2 + 16000**2)),
        (12.0, 13.4, 0.0018, 0.0001),
    ],
)
def test_where_one_of_both_would_be_below_zero_the_other_is_fitted_alone(
    narrow_ms: float, wide_ms: float, per_past: float, per_work: float
) -> None:
    flat = [(RunShape(1, 2, 0, 0), 10.0), (RunShape(1, 16, 0, 0), 10.0)]
    long = [(RunShape(1, 2, 1000, 2000), narrow_ms), (RunShape(1, 16, 1000, 16000), wide_ms)]
    found = fit(flat + long)
    assert (found.per_past, found.per_work) == pytest.approx((per_past, per_work))


def test_noise_between_short_pasts_leaves_a_curve() -> None:
    """A context of 16 tokens has 4 and 8 of them cached: nothing is known of none."""
    found = fit([(RunShape(1, 2, 4, 8), 10.0), (RunShape(1, 2, 8, 16), 90.0)])
    assert found.curve == ((2, 5.0),)


def test_a_real_target_is_measured_and_left_empty(package: Package) -> None:
    target = Target(package, select_provider("cpu", "cpu"))
    slots = target.make_slots(2, 200)
    calibration = calibrate(target, slots)
    assert all(ms > 0 for _, ms in (*calibration.points, *calibration.checks))
    assert {shape.rows for shape, _ in calibration.points} == {1, 2}
    assert [slot.length for slot in slots] == [0, 0]
    coefficients = calibration.coefficients()
    assert min(coefficients.per_row, coefficients.per_past, coefficients.per_work) >= 0
