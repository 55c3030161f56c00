"""Policy `cost` against what a drafter may do to it: never much slower than plain decoding."""

from __future__ import annotations

import random

import pytest

from gateway.engine.costs.shape import Load, RunShape
from gateway.engine.policies.cost import CostPolicy
from tests.policy_simulation import DRAFTS, Answered, World, answer, candidate, plain_ms

TOKENS = 300
TURN = 60
"""The round in which a drafter turns."""


def chance(seed: int, share: float):
    """Right with probability `share`, the same for whoever asks."""

    def right(number: int, depth: int) -> bool:
        return random.Random(hash((seed, number, depth))).random() < share

    return right


def after(world: World, answered: Answered, turn: int) -> float:
    """What the rounds from `turn` on took, against plain decoding of as many tokens."""
    return answered.ms / plain_ms(world, answered.tokens)


def test_a_good_drafter_pays() -> None:
    world = World(chance(1, 0.75))
    assert answer(world, TOKENS).ms < 0.75 * plain_ms(world, TOKENS)


@pytest.mark.parametrize("confidence", [None, 0.99], ids=["calibrated", "sure of itself"])
@pytest.mark.parametrize("seed", range(5))
def test_a_drafter_that_is_always_wrong_costs_under_three_percent(
    seed: int, confidence: float | None
) -> None:
    world = World(lambda number, depth: False, confidence=confidence)
    assert answer(world, TOKENS).ms < 1.03 * plain_ms(world, TOKENS)


@pytest.mark.parametrize("confidence", [None, 0.99], ids=["calibrated", "sure of itself"])
@pytest.mark.parametrize("share", [0.5, 0.75, 0.9, 1.0])
def test_a_drafter_that_turns_wrong_costs_under_three_percent(
    share: float, confidence: float | None
) -> None:
    """However good it was before: the rounds after its turn against plain decoding."""
    good = chance(3, share)
    world = World(
        lambda number, depth: number < TURN and good(number, depth), confidence=confidence
    )
    policy, drafter = CostPolicy(None, world.costs), candidate()
    first = World(good, confidence=confidence, costs=world.costs)
    answer(first, 150, policy, drafter)
    bad = World(lambda number, depth: False, confidence=confidence, costs=world.costs)
    assert answer(bad, TOKENS, policy, drafter).ms < 1.03 * plain_ms(bad, TOKENS)


@pytest.mark.parametrize("times", [2, 3, 5, 10, 15])
@pytest.mark.parametrize("share", [0.5, 0.75, 0.9])
def test_a_drafter_that_turns_slow_costs_under_three_percent(times: int, share: float) -> None:
    """Its drafts are as good as before, and take `times` as long."""
    good = World(chance(5, share))
    policy, drafter = CostPolicy(None, good.costs), candidate()
    answer(good, 150, policy, drafter)
    slow = World(chance(6, share), lambda _, length: times * DRAFTS[length], costs=good.costs)
    assert answer(slow, TOKENS, policy, drafter).ms < 1.03 * plain_ms(slow, TOKENS)


def test_probing_what_does_not_pay_costs_under_one_percent() -> None:
    """Long after everything about the drafter is known."""
    world = World(lambda number, depth: False)
    policy, drafter = CostPolicy(None, world.costs), candidate()
    answer(world, 200, policy, drafter)
    later = answer(world, 5000, policy, drafter)
    assert sum(drafted > 0 for drafted in later.drafted) > 0
    assert later.ms < 1.01 * plain_ms(world, 5000)


def test_a_drafter_that_was_held_up_once_is_back_at_once() -> None:
    world = World(
        chance(7, 0.75), lambda number, length: (10 if number == 30 else 1) * DRAFTS[length]
    )
    drafted = answer(world, TOKENS).drafted
    assert all(length > 0 for length in drafted[20:31])
    assert sum(length > 0 for length in drafted[31:81]) > 40


def test_a_drafter_that_turns_right_is_found_within_some_rounds() -> None:
    wrong = World(lambda number, depth: False)
    policy, drafter = CostPolicy(None, wrong.costs), candidate()
    answer(wrong, 200, policy, drafter)
    right = World(chance(8, 0.9), costs=wrong.costs)
    found = answer(right, 600, policy, drafter)
    assert found.ms < 0.75 * plain_ms(right, 600)


@pytest.mark.parametrize("others", [0, 1, 3, 7])
def test_text_that_is_hard_to_foresee_is_never_slower(others: int) -> None:
    """Creative writing: a fifth of the tokens is foreseen."""
    world = World(chance(9, 0.2))
    load = Load(RunShape(others, others))
    spent = answer(world, TOKENS, load=load).ms
    assert spent < 1.03 * TOKENS * world.truth.predict(load.run(1))


def test_width_recedes_with_company_and_is_back_when_it_leaves() -> None:
    """One stream, then seven others beside it, then one again; a place costs each the same."""
    world = World(chance(10, 0.75))
    policy, drafter = CostPolicy(None, world.costs), candidate()
    full = Load(RunShape(7, 14))
    alone = answer(world, 100, policy, drafter).widths
    busy = answer(world, 100, policy, drafter, load=full).widths
    again = answer(world, 100, policy, drafter).widths
    mean = sum(alone[10:]) / len(alone[10:])
    assert sum(busy[1:21]) / 20 < 0.75 * mean
    assert sum(again[:20]) / 20 > 0.85 * mean
