"""How rows divide a run: against all ways to divide it."""

from __future__ import annotations

from itertools import accumulate, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.engine.costs.coefficients import Coefficients
from gateway.engine.costs.run_costs import RunCosts
from gateway.engine.costs.shape import NOBODY, RunShape
from gateway.engine.policies.allocation import LEAST_GAIN, allocate, most_gain
from gateway.engine.policies.offers import NOTHING, Need, Offer, whole
from models.draft import Draft

GENTLE = RunCosts.by_width({2: 10.0, 32: 40.0})
"""A place costs a tenth of plain decoding."""


def offered(*confidence: float, need: Need | None = None) -> Offer:
    draft = Draft(tuple(range(len(confidence))), confidence=confidence)
    worth = tuple(accumulate(confidence, lambda before, each: before * each))
    return Offer(draft, range(len(confidence)), worth, need=need)


def costs_of(slope: float, per_work: float = 0.0, per_row: float = 0.0) -> RunCosts:
    curve = ((2, 10.0), (64, 10.0 + 62 * slope))
    return RunCosts(Coefficients(curve, per_row=per_row, per_work=per_work))


def rate(offers: list[Offer], counts: tuple[int, ...], cached: list[int], costs: RunCosts) -> float:
    """E[tokens of all rows] / T, by the definition."""
    rows = [(past, 1 + count) for past, count in zip(cached, counts, strict=True)]
    tau = sum(1 + sum(offer.worth[:count]) for offer, count in zip(offers, counts, strict=True))
    return tau / costs.predict(RunShape.of(rows))


rows = st.lists(st.lists(st.floats(0.0, 1.0), max_size=3), min_size=1, max_size=3)


@settings(max_examples=300, deadline=None)
@given(confidences=rows, slope=st.floats(0.0, 8.0), per_row=st.floats(0.0, 2.0))
def test_no_other_division_brings_more_tokens_a_millisecond(
    confidences: list[list[float]], slope: float, per_row: float
) -> None:
    offers, costs = [offered(*each) for each in confidences], costs_of(slope, per_row=per_row)
    cached = [100] * len(offers)
    counts = tuple(allocate(offers, cached, NOBODY, costs))
    plain = (0,) * len(offers)
    every = list(product(*(range(len(offer.order) + 1) for offer in offers)))
    best = max(every, key=lambda each: rate(offers, each, cached, costs))
    found, least = rate(offers, counts, cached, costs), rate(offers, plain, cached, costs)
    assert found >= least * (1 - 1e-12), "never slower than plain decoding"
    most = rate(offers, best, cached, costs)
    if most >= least * LEAST_GAIN:
        assert found == pytest.approx(most, rel=1e-9)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0.0, 1.0), st.sampled_from((0.0, 0.0, 1.0, 20.0))), max_size=12)
)
def test_a_search_that_ends_early_misses_nothing_behind_a_step(
    tokens: list[tuple[float, float]],
) -> None:
    worth = sorted((each for each, _ in tokens), reverse=True)
    times = list(accumulate((step for _, step in tokens), initial=10.0))
    gains = [
        tau * times[0] / ms for tau, ms in zip(accumulate(worth, initial=1.0), times, strict=True)
    ]
    pays = [
        gain for gain, ms in zip(gains, times, strict=True) if gain >= LEAST_GAIN or ms <= times[0]
    ]
    count, gain = most_gain(worth, times)
    assert gain == pytest.approx(max(pays))
    assert gain == pytest.approx(gains[count])


def test_width_goes_to_the_rows_that_gain_most() -> None:
    costs = costs_of(2.0)
    counts = allocate([offered(0.9, 0.8, 0.7), offered(0.3, 0.3), NOTHING], [0] * 3, NOBODY, costs)
    assert counts == [2, 0, 0]


def test_speculation_recedes_as_the_run_fills() -> None:
    """A place costs a fifth of plain decoding: alone a token must add a fifth of what the row
    advances, among eight as much of what all eight do."""
    costs, one = costs_of(2.0), offered(*(0.85,) * 6)
    taken = [
        sum(allocate([one] * count, [0] * count, NOBODY, costs)) / count for count in (1, 2, 4, 8)
    ]
    assert taken == sorted(taken, reverse=True)
    assert taken[0] >= 4
    assert taken[-1] <= 1


def test_what_a_long_text_costs_counts_for_its_own_row() -> None:
    """The same tokens behind 2,000 cached ones are dearer than behind none."""
    costs = costs_of(0.1, per_work=0.002)
    counts = allocate([offered(0.5, 0.5), offered(0.5, 0.5)], [2000, 0], NOBODY, costs)
    assert counts[0] <= counts[1]
    assert allocate([offered(0.5, 0.5)], [4000], NOBODY, costs)[0] == 1
    assert allocate([offered(0.5, 0.5)], [0], NOBODY, costs)[0] == 2


def test_what_is_verified_anyway_is_in_the_run_that_others_join() -> None:
    assert allocate([whole(Draft((1, 2, 3)))], [0], NOBODY, costs_of(50.0)) == [3]
    knee = RunCosts.by_width({2: 10.0, 5: 30.0, 32: 30.0})
    assert allocate([offered(0.5), NOTHING], [0, 0], NOBODY, knee) == [0, 0]
    assert allocate([offered(0.5), whole(Draft((1, 2, 3)))], [0, 0], NOBODY, knee) == [1, 3]


def test_a_chunk_in_the_run_makes_places_cheap_or_dear_by_the_curve() -> None:
    knee = RunCosts.by_width({2: 10.0, 8: 40.0, 64: 40.0})
    assert allocate([offered(0.4, 0.4)], [0], NOBODY, knee) == [1]
    assert allocate([offered(0.4, 0.4)], [0], RunShape(1, 32), knee) == [2]


@pytest.mark.parametrize(("rows", "alone"), [(1, [1]), (3, [0, 0, 0])])
def test_what_others_pay_makes_no_place_cheap(rows: int, alone: list[int]) -> None:
    """A place costs 7 ms, which 0.4 of a token is not worth at 10 ms a token; against a run that
    takes 200 ms more it would be. (Of a row that is alone the first place is free.)"""
    costs, chunk = costs_of(7.0), RunShape(1, 32)
    offers, cached = [offered(0.4, 0.4)] * rows, [0] * rows
    assert allocate(offers, cached, NOBODY, costs) == alone
    assert allocate(offers, cached, chunk, costs) == [2] * rows
    plain = RunShape(rows, rows)
    paid = costs.predict(plain.also(chunk)) - costs.predict(plain)
    assert allocate(offers, cached, chunk, costs, paid) == [0] * rows


def test_the_host_pays_for_every_round_alike() -> None:
    """Where a round takes long anyway a place is cheap."""
    costs = costs_of(4.0)
    assert allocate([offered(0.5, 0.3)], [0], NOBODY, costs) == [1]
    costs.overhead.observe(100.0)
    assert allocate([offered(0.5, 0.3)], [0], NOBODY, costs) == [2]


def behind(tpot_ms: float) -> Need:
    """Ten tokens took 100.5 ms."""
    return Need(tpot_ms, 100.5, 10)


def test_a_row_behind_its_target_gets_width_before_likelier_tokens() -> None:
    """A place costs 3 ms: with one of its own tokens the round takes 13 ms, and (100.5 + 13) / 10 -
    10 is 1.35 tokens; the likelier tokens of the other row would only make it longer."""
    costs = costs_of(3.0)
    other = offered(0.9, 0.9, 0.9, 0.9)
    needy = offered(0.4, 0.01, need=behind(10.0))
    without = allocate([other, offered(0.4, 0.01)], [0, 0], NOBODY, costs)
    assert without[0] > 0
    assert without[1] == 0
    assert allocate([other, needy], [0, 0], NOBODY, costs) == [0, 1]


def test_a_target_that_no_width_reaches_takes_nothing_from_others() -> None:
    costs = costs_of(3.0)
    other, hopeless = offered(0.9, 0.9, 0.9), offered(0.4, 0.01, need=behind(1.0))
    assert allocate([other, hopeless], [0, 0], NOBODY, costs) == allocate(
        [other, offered(0.4, 0.01)], [0, 0], NOBODY, costs
    )


def test_others_do_not_make_a_round_too_long_for_a_target() -> None:
    """Plain decoding keeps it: (99.9 + 10) / 10 - 10 is 0.99. With the other row's tokens the round
    would take 13 ms and more."""
    costs = costs_of(3.0)
    other, easy = offered(0.9, 0.9), offered(0.01, need=Need(10.0, 99.9, 10))
    assert allocate([other, offered(0.01)], [0, 0], NOBODY, costs)[0] > 0
    assert allocate([other, easy], [0, 0], NOBODY, costs) == [0, 0]


def test_of_two_targets_one_that_can_be_kept_is_kept() -> None:
    costs = costs_of(3.0)
    hopeless = offered(0.9, 0.9, need=behind(1.0))
    needy = offered(0.4, 0.01, need=behind(10.0))
    assert allocate([hopeless, needy], [0, 0], NOBODY, costs) == [0, 1]


def test_where_targets_are_kept_anyway_the_sum_decides() -> None:
    costs = costs_of(1.0)
    easy = Need(1000.0, 100.0, 10)
    plain = [offered(0.9, 0.9), offered(0.5)]
    eased = [offered(0.9, 0.9, need=easy), offered(0.5, need=easy)]
    assert allocate(eased, [0, 0], NOBODY, costs) == allocate(plain, [0, 0], NOBODY, costs)
