"""Steady windows, the cost model's word and the figures of a point, by hand."""

from __future__ import annotations

from typing import Any

import pytest

from bench.run.schema import Absent, Interval, Quantity
from bench.synthetic.cells import cells_of
from bench.synthetic.driving import Kept, Pair
from bench.synthetic.model import CostModel
from bench.synthetic.plan import Plan, Point
from bench.synthetic.schema import Cell
from bench.synthetic.turns import Steady, Turn, steady_of
from tests.bench_serve_support import arrivals

POINT = Point(2, 0.5)
PLAN = Plan((0.5,), (2,), (1,), "ngram", rounds=16, repeats=2, seed=0)
STATUS: dict[str, Any] = {
    "run_ms": {"2": 10.0, "4": 14.0, "8": 20.0},
    "costs": {
        "factor": 2.0,
        "per_row": 0.5,
        "per_past": 0.01,
        "per_work": 0.001,
        "overhead_ms": 0.25,
    },
    "drafters": [{"name": "eagle3", "run_ms": {"1": 2.0, "3": 4.0}}],
}


def turn(token_ms: float, tau: float, predicted_ms: float, proposed: float = 2.0) -> Turn:
    return Turn(Steady(token_ms, token_ms * tau, tau, proposed, past=50), predicted_ms)


def test_the_wire_imposes_acceptance_and_the_formula_gives_tau() -> None:
    assert POINT.wire == {
        "policy": "fixed",
        "length": 2,
        "rule": "synthetic",
        "acceptance": 0.5,
    }
    assert Point().wire == {"policy": "off"}
    assert POINT.tau == 1.75
    assert Point(3, 1.0).tau == 4
    assert PLAN.tokens(POINT) == 16 * 1.75 + 6


def test_only_the_time_in_which_all_streams_run_with_whole_drafts_counts() -> None:
    first = arrivals(*((0.1 * n, 2, n, 3) for n in range(12)))
    second = arrivals((0.15, 1, 0, 0), *((0.15 + 0.1 * n, 2, n, 3) for n in range(1, 14)))
    steady = steady_of([first, second], prompt_tokens=10, length=3)
    assert steady is not None
    # From 0.15 on, up to the first stream's last delta but one: two tokens are left then.
    assert steady.round_ms == pytest.approx(0.85e3 * 2 / (9 + 8))
    assert steady.tau == 2.0
    assert steady.token_ms == pytest.approx(steady.round_ms / 2)
    assert steady.proposed == 3.0
    assert steady.past == round(10 + (4 + 1 + 34 / 2) / 2)


def test_streams_that_hardly_run_together_are_not_timed() -> None:
    early = arrivals(*((0.1 * n, 1, n, 0) for n in range(20)))
    late = arrivals(*((1.5 + 0.1 * n, 1, n, 0) for n in range(20)))
    assert steady_of([early], 10, 0) is not None
    assert steady_of([early, late], 10, 0) is None
    apart = arrivals(*((5.0 + 0.1 * n, 1, n, 0) for n in range(20)))
    assert steady_of([early, apart], 10, 0) is None


def test_the_model_is_the_gateways_own_with_its_corrections() -> None:
    model = CostModel.of(STATUS, "eagle3")
    run = 12.0 + 2 * 0.01 * 100 + 2 * 0.001 * 100 * 3
    assert model.round_ms(1, 2, 100) == pytest.approx(run + 3.0 + 0.25)
    # A lone token is padded to two, and plain decoding drafts nothing.
    assert model.round_ms(1, 0, 0) == pytest.approx(10.0 + 0.25)
    two = 17.0 + 2 * 0.5 + 2 * 0.01 * 200 + 2 * 0.001 * 100 * 3 * 2
    assert model.round_ms(2, 2, 100) == pytest.approx(two + 2 * 3.0 + 0.25)
    assert CostModel.of(STATUS, "ngram").round_ms(1, 2, 100) == pytest.approx(run + 0.25)


def measured(*pairs: Pair) -> Cell:
    (cell,) = cells_of(PLAN, Kept(pairs={(1, POINT): list(pairs)}))
    return cell


def test_figures_of_a_point() -> None:
    cell = measured(
        Pair(turn(8.0, 2.0, 17.5), turn(10.0, 1.0, 11.0, 0.0)),
        Pair(turn(12.0, 2.0, 17.5), turn(14.0, 1.0, 13.0, 0.0)),
    )
    assert cell.speedup == Quantity(24 / 20, "x")
    assert isinstance(cell.interval, Interval)
    assert cell.interval.prompts == 2
    assert cell.round == Quantity(20.0, "ms/round")
    assert cell.speedup_formula == Quantity(1.75 * 12 / 20, "x")
    assert cell.speedup_predicted == Quantity(1.75 * 12 / 17.5, "x")
    assert cell.round_error == Quantity(17.5 / 20 - 1, "share")
    assert cell.off_error == Quantity(12 / 12 - 1, "share")
    assert cell.token_error == Quantity(10 / 10 - 1, "share")
    assert isinstance(cell.break_even, Quantity)
    assert cell.break_even.value == pytest.approx(0.4574, abs=1e-3), "1 + a + a^2 = 20/12"


def test_shorter_drafts_are_not_comparable_and_keep_their_figures() -> None:
    cell = measured(Pair(turn(8.0, 1.5, 17.5, proposed=1.2), turn(10.0, 1.0, 11.0, 0.0)))
    assert cell.speedup == Absent(
        "not_comparable", "drafts had 1.2 tokens on average, not 2", Quantity(10 / 8, "x")
    )
    assert cell.proposed == Quantity(1.2, "tokens/round")
    assert isinstance(cell.interval, Absent)


def test_what_was_not_measured_has_a_word() -> None:
    (unseen,) = cells_of(PLAN, Kept())
    assert isinstance(unseen.speedup, Absent)
    assert unseen.speedup.absent == "missing"
    assert unseen.tau_formula == Quantity(1.75, "tokens/round")
    failed = Absent("failed", "eagle3: the kernel failed")
    (cell,) = cells_of(PLAN, Kept(absent={(1, POINT): failed}))
    assert cell.round == cell.interval == failed
    single = measured(Pair(turn(8.0, 2.0, 17.5), turn(10.0, 1.0, 11.0, 0.0)))
    assert isinstance(single.interval, Absent)
    assert single.interval.absent == "missing"
