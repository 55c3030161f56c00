"""Answers as policies see them: rounds with a simulated clock, on costs like a real model's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from gateway.engine.costs.draft_costs import DraftCosts
from gateway.engine.costs.run_costs import RunCosts
from gateway.engine.costs.shape import Load, RunShape
from gateway.engine.policies.allocation import allocate
from gateway.engine.policies.base import Candidate, Policy
from gateway.engine.policies.cost import CostPolicy
from models.draft import Draft
from models.drafters.survival import Published, Survival

RUNS = {2: 27.0, 3: 28.5, 4: 30.0, 6: 33.0, 8: 36.0, 12: 43.0, 16: 50.0, 32: 80.0, 64: 140.0}
"""Milliseconds by tokens: a 135M model on two cores without integer dot products."""

DRAFTS = {length: 2.0 + 2.0 * length for length in range(1, 9)}
RIGHT, WRONG = 1, 0


@dataclass
class World:
    """A target and one learned drafter, and what they really do.

    `right(round, depth)`: whether a draft token is what the target says. `draft_ms(round, length)`
    is what a draft takes.
    """

    right: Callable[[int, int], bool]
    draft_ms: Callable[[int, int], float] = lambda _, length: DRAFTS[length]
    confidence: float | None = None
    costs: RunCosts = field(default_factory=lambda: RunCosts.by_width(RUNS))
    truth: RunCosts = field(default_factory=lambda: RunCosts.by_width(RUNS))


@dataclass
class Answered:
    """`rounds` of an answer: the tokens verified beside the bonus token, and the milliseconds."""

    tokens: int = 0
    ms: float = 0.0
    widths: list[int] = field(default_factory=list)
    drafted: list[int] = field(default_factory=list)


def candidate(survival: tuple[float, ...] = (0.7, 0.5, 0.35, 0.25)) -> Candidate:
    """As the engine makes one for a request."""
    engine = Survival(Published(survival), 20.0, 0.995)
    return Candidate("eagle3", 8, DraftCosts(DRAFTS), Survival(engine, 4.0, 0.9, abrupt=True))


def answer(
    world: World,
    tokens: int,
    policy: Policy | None = None,
    drafter: Candidate | None = None,
    load: Load | None = None,
) -> Answered:
    """Answer `tokens` tokens alone, or in the company that `load` is."""
    policy = policy or CostPolicy(None, world.costs)
    drafter = drafter or candidate()
    load, done = load or Load(), Answered()
    number = 0
    while done.tokens < tokens:
        budget = policy.budget(tokens - done.tokens - 1)
        plan = policy.plan(Draft(), [drafter], load, budget)
        draft, took = Draft(), 0.0
        if plan is not None:
            took = world.draft_ms(number, plan.budget)
            drafter.costs.observe(plan.budget, took)
            draft = propose(world, number, plan.budget, drafter)
        offer = policy.offer(draft, load)
        (count,) = allocate([offer], [load.cached], load.others, world.costs)
        accepted = 0
        while accepted < count and world.right(number, accepted):
            accepted += 1
        run = world.truth.predict(load.run(1 + count))
        world.costs.observe(load.run(1 + count), run)
        said = (*draft.tokens[:accepted], 99)
        if draft.tokens:
            drafter.survival.observe(draft, said)
        policy.observe(draft, said)
        done.tokens += len(said)
        done.ms += took + run
        done.widths.append(1 + count)
        done.drafted.append(0 if plan is None else plan.budget)
        number += 1
    return done


def propose(world: World, number: int, length: int, drafter: Candidate) -> Draft:
    """Token 1 where it is right, 0 where it is wrong, which the target never says."""
    tokens = tuple(RIGHT if world.right(number, depth) else WRONG for depth in range(length))
    confidence = tuple(
        drafter.survival.accepted(depth) if world.confidence is None else world.confidence
        for depth in range(length)
    )
    return Draft(tokens, confidence=confidence, source="eagle3")


def plain_ms(world: World, tokens: int) -> float:
    return tokens * world.truth.predict(RunShape(1, 1))
