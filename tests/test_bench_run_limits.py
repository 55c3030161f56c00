"""What cells of a run say together."""

from __future__ import annotations

import dataclasses

import pytest

from bench.prompts import Question
from bench.run.contract import cells_of
from bench.run.limits import against_fixed, comparisons, limits
from bench.run.plan import BASELINE, Plan, RunSetting
from bench.run.schema import RunCell
from bench.setup import Setup
from models.package import Package
from models.sampling.parameters import Sampling
from tests.bench_run_support import DRAFTED, NGRAM4, PLAIN, Outcome, Wave, answer, outcome

COST = RunSetting("ngram", "cost", None, "coupled")
FIXED2 = RunSetting("ngram", "fixed", 2, "coupled")
STATUS = {"device": "cpu", "exact": True, "slots": 4}


def of(setting: RunSetting, tpot_ms: float | None, timings: dict[str, object]) -> Outcome:
    return outcome(setting, Wave(1.0, (answer("a", tpot_ms, timings=timings),)))


@pytest.fixture
def cells(package: Package) -> list[RunCell]:
    """Off 10 ms, fixed lengths 5 and 8 ms, the policy 4 ms a token."""
    outcomes = [
        of(BASELINE, 10.0, PLAIN),
        of(NGRAM4, 5.0, DRAFTED),
        of(FIXED2, 8.0, DRAFTED),
        of(COST, 4.0, DRAFTED | {"tpot_ms": 4.0, "verify_ms": 30.0}),
    ]
    setup = Setup(package, [Question("a", "copy", ("x",))])
    plan = Plan((), (Sampling(),), (1,), {}, 1, 10, 0)
    return cells_of(setup, plan, outcomes, STATUS)


def test_a_policy_is_compared_with_the_fastest_fixed_length(cells: list[RunCell]) -> None:
    rows = against_fixed(cells).rows
    assert rows == ((COST.name, "all", NGRAM4.name, "1.25", "2.50", "2.00"),)


def test_what_limits_is_tau_against_what_a_round_costs(cells: list[RunCell]) -> None:
    """Off's round: 90 ms of nine tokens in nine rounds, 10 ms. Fixed: 9 x 5 ms in 4 rounds, 11.25,
    of which 0.5 drafting; tau is 2.25."""
    rows = {row[0]: row[1:] for row in limits(cells).rows}
    assert rows[NGRAM4.name] == ("all", "2.25", "1.12", "0.05", "1.07", "2.00", "2.09")
    assert BASELINE.name not in rows


def test_without_what_it_is_compared_with_there_is_no_row(cells: list[RunCell]) -> None:
    alone = [cell for cell in cells if cell.setting == COST.name]
    assert comparisons(alone) == []
    assert against_fixed([cell for cell in cells if cell.setting != COST.name]).rows == ()


def test_a_setting_without_a_figure_is_missing_not_zero(
    package: Package, cells: list[RunCell]
) -> None:
    silent = dataclasses.replace(
        cells[3],
        metrics=dataclasses.replace(cells[3].metrics, tpot=cells[0].baseline.ratio),
    )
    (row,) = against_fixed([*cells[:3], silent]).rows
    assert row[3:] == ("missing", "missing", "2.00")
