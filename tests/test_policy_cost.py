"""Policy `cost`: when a learned drafter runs, how far, and what of a draft is verified."""

from __future__ import annotations

import dataclasses
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.engine.costs.draft_costs import DraftCosts
from gateway.engine.costs.run_costs import RunCosts
from gateway.engine.costs.shape import Load, RunShape
from gateway.engine.policies.allocation import allocate
from gateway.engine.policies.base import LONGEST_DRAFT, Candidate, Plan
from gateway.engine.policies.cost import CostPolicy
from models.draft import Draft, Proposal
from models.drafters.survival import Published, Survival

FREE = RunCosts.by_width({2: 10.0, 32: 10.0})
STEEP = RunCosts.by_width({2: 10.0, 4: 30.0, 32: 310.0})
"""Every further token costs as much as plain decoding: drafting can at best break even."""
GENTLE = RunCosts.by_width({2: 10.0, 12: 20.0})


class Alone:
    """Policy `cost` and the run that takes its offers, which no other row has."""

    def __init__(self, costs: RunCosts, length: int | None = None) -> None:
        self.policy = CostPolicy(length, costs)
        self.plan, self.budget = self.policy.plan, self.policy.budget
        self._costs = costs

    def select(self, draft: Draft, load: Load) -> Draft:
        offer = self.policy.offer(draft, load)
        (count,) = allocate([offer], [load.cached], load.others, self._costs)
        return offer.first(count)


def auto(costs: RunCosts, length: int | None = None) -> Alone:
    return Alone(costs, length)


def company(others: int) -> Load:
    """Others that decode plainly."""
    return Load(RunShape(others, others))


def chain(*confidence: float) -> Draft:
    return Draft(tokens=tuple(range(10, 10 + len(confidence))), confidence=confidence, source="x")


def length(controller: Alone, *confidence: float, load: Load) -> int:
    return len(controller.select(chain(*confidence), load).tokens)


def test_a_budget_is_what_fits_the_request_and_the_room() -> None:
    assert auto(FREE).budget(1000) == LONGEST_DRAFT
    assert auto(FREE, length=5).budget(1000) == 5
    assert auto(FREE, length=5).budget(2) == 2
    assert auto(FREE, length=0).budget(10) == 0
    assert auto(FREE).budget(0) == auto(FREE).budget(-1) == 0


def test_auto_takes_all_of_a_draft_that_costs_nothing() -> None:
    assert length(auto(FREE), 0.5, 0.5, 0.5, load=company(0)) == 3


def test_auto_never_drafts_where_it_cannot_pay() -> None:
    assert length(auto(STEEP), *(0.9,) * 8, load=company(1)) == 0
    assert length(auto(FREE), load=company(0)) == 0


def test_auto_needs_a_gain_beyond_noise() -> None:
    barely = RunCosts.by_width({2: 10.0, 3: 10.01, 32: 10.3})
    assert length(auto(barely), 0.02, load=company(1)) == 0
    assert length(auto(barely), 0.04, load=company(1)) == 1


def test_auto_takes_the_token_that_pads_a_lone_stream_whatever_it_promises() -> None:
    assert length(auto(STEEP), 0.01, 0.9, load=company(0)) == 1
    assert length(auto(STEEP), 0.01, 0.9, load=company(1)) == 0


def test_auto_maximises_expected_tokens_per_millisecond() -> None:
    """Against the definition, E[tau] / T, over all lengths."""
    confidence = (0.95, 0.9, 0.85, 0.6, 0.5, 0.3, 0.2, 0.1)
    rates = []
    for size in range(len(confidence) + 1):
        survival, tau = 1.0, 1.0
        for probability in confidence[:size]:
            survival *= probability
            tau += survival
        rates.append(tau / GENTLE.predict(RunShape(1, size + 1)))
    best = max(range(len(rates)), key=rates.__getitem__)
    assert 0 < best < len(confidence)
    assert length(auto(GENTLE), *confidence, load=company(0)) == best


def test_company_in_the_run_makes_a_token_dearer_or_cheaper_by_the_curve() -> None:
    """Alone a second token is dear, behind the knee it is nearly free."""
    knee = RunCosts.by_width({2: 10.0, 4: 40.0, 5: 40.0, 32: 41.0})
    confidence = (0.8, 0.8)
    assert length(auto(knee), *confidence, load=company(1)) == 0
    assert length(auto(knee), *confidence, load=company(4)) == 2


@st.composite
def trees(draw: st.DrawFn) -> Draft:
    """Up to seven tokens; the confidences of siblings sum to 1 at most."""
    size = draw(st.integers(0, 7))
    parents = tuple(draw(st.integers(-1, node - 1)) for node in range(size))
    left = dict.fromkeys(range(-1, size), 1.0)
    confidence = []
    for parent in parents:
        confidence.append(left[parent] * draw(st.floats(0.0, 1.0)))
        left[parent] -= confidence[-1]
    return Draft(tuple(range(50, 50 + size)), parents, None, tuple(confidence), "x")


def expected_tokens(draft: Draft, nodes: tuple[int, ...]) -> float:
    """1 + the sum over `nodes` of the product of the confidences on the way to each."""
    assert draft.parents is not None
    assert draft.confidence is not None
    tau = 1.0
    for node in nodes:
        survival, at = 1.0, node
        while at >= 0:
            survival *= draft.confidence[at]
            at = draft.parents[at]
        tau += survival
    return tau


def closed_parts(draft: Draft) -> list[tuple[int, ...]]:
    parents = draft.parents
    assert parents is not None
    every = range(len(parents))
    return [
        nodes
        for size in range(len(parents) + 1)
        for nodes in combinations(every, size)
        if all(parents[node] in (*nodes, -1) for node in nodes)
    ]


def is_chain(draft: Draft, nodes: tuple[int, ...]) -> bool:
    assert draft.parents is not None
    return [draft.parents[node] for node in nodes] == [-1, *nodes][: len(nodes)]


def costs_with_dear_trees(slope: float) -> RunCosts:
    costs = RunCosts.by_width({2: 10.0, 12: 10.0 + 10 * slope})
    for _ in range(100):
        costs.observe(RunShape(1, 4, tree=True), 1.2 * costs.predict(RunShape(1, 4)))
    return costs


@settings(max_examples=300, deadline=None)
@given(draft=trees(), slope=st.floats(0.0, 6.0), others=st.integers(0, 3), dear=st.booleans())
def test_what_is_verified_of_a_tree_is_the_best_of_all_its_parts(
    draft: Draft, slope: float, others: int, dear: bool
) -> None:
    """By brute force: no part of any shape promises more tokens per millisecond."""
    costs = (
        costs_with_dear_trees(slope)
        if dear
        else RunCosts.by_width({2: 10.0, 12: 10.0 + 10 * slope})
    )
    load = company(others)
    plain = costs.predict(load.run(1))

    def gain(nodes: tuple[int, ...]) -> float:
        cost = costs.predict(load.run(1 + len(nodes), not is_chain(draft, nodes)))
        ratio = expected_tokens(draft, nodes) * plain / cost
        return ratio if cost <= plain or ratio >= 1.03 else 0.0

    chosen = auto(costs).select(draft, load)
    nodes = tuple(token - 50 for token in chosen.tokens)
    assert gain(nodes) == pytest.approx(max(1.0, *map(gain, closed_parts(draft))), rel=1e-9)


@settings(max_examples=300, deadline=None)
@given(draft=trees(), slope=st.floats(0.0, 2.0))
def test_a_part_of_a_tree_keeps_order_parents_and_confidence(draft: Draft, slope: float) -> None:
    assert draft.parents is not None
    assert draft.confidence is not None
    chosen = auto(RunCosts.by_width({2: 10.0, 12: 10.0 + 10 * slope})).select(
        draft, load=company(1)
    )
    nodes = [token - 50 for token in chosen.tokens]
    assert nodes == sorted(nodes)
    assert chosen.source == "x"
    assert chosen.confidence == tuple(draft.confidence[node] for node in nodes)
    parents = chosen.parents or tuple(range(-1, len(nodes) - 1))
    for place, node in enumerate(nodes):
        assert parents[place] < place
        at = nodes[parents[place]] if parents[place] >= 0 else -1
        assert at == draft.parents[node]


PROPOSALS = tuple(
    Proposal(np.array([token]), np.array([1.0], np.float64)) for token in (1, 2, 3, 4, 5)
)
FORKED = Draft((1, 2, 3, 4, 5), (-1, 0, 0, 2, -1), PROPOSALS, (0.7, 0.2, 0.6, 0.9, 0.25), "x")
"""Path survivals 0.7, 0.14, 0.42, 0.378, 0.25."""


@pytest.mark.parametrize(
    ("cost", "kept", "parents"),
    [
        (0.0, (0, 1, 2, 3, 4), (-1, 0, 0, 2, -1)),
        (0.7, (0, 2, 3, 4), (-1, 0, 1, -1)),
        (1.6, (0, 2, 3), None),
        (5.0, (0,), None),
        (9.0, (), None),
    ],
)
def test_the_dearer_a_token_the_less_of_a_tree_is_verified(
    cost: float, kept: tuple[int, ...], parents: tuple[int, ...] | None
) -> None:
    costs = RunCosts.by_width({2: 10.0, 12: 10.0 + 10 * cost})
    chosen = auto(costs).select(FORKED, load=company(1))
    assert chosen.tokens == tuple(FORKED.tokens[node] for node in kept)
    assert chosen.parents == parents
    assert chosen.proposals == tuple(PROPOSALS[node] for node in kept)


def test_a_tree_that_costs_more_than_it_adds_becomes_its_best_chain() -> None:
    assert auto(FREE).select(FORKED, load=company(1)) is FORKED
    dear = costs_with_dear_trees(0.0)
    chosen = auto(dear).select(FORKED, load=company(1))
    assert (chosen.tokens, chosen.parents) == ((1, 3, 4), None)


def test_a_draft_without_confidence_is_believed() -> None:
    draft = Draft(tokens=(1, 2, 3), source="x")
    assert auto(GENTLE).select(draft, load=company(0)) is draft
    assert auto(STEEP).select(draft, load=company(0)) == Draft(tokens=(1,), source="x")


def candidate(
    *survival: float, cost: float = 1.0, name: str = "eagle3", tree: bool = False
) -> Candidate:
    """A drafter of known survival by depth that costs `cost` a token."""
    steps = range(1, 9)
    return Candidate(
        name=name,
        longest=len(survival),
        costs=DraftCosts({step: cost * step for step in steps}),
        survival=Survival(Published(survival), 1.0, 1.0),
        tree=tree,
    )


GOOD = (0.7, 0.5, 0.35, 0.25)


def best_length(survival: tuple[float, ...], cost: float, costs: RunCosts) -> tuple[int, float]:
    """By the definition, E[tau] / (T_draft + T_verify) against plain decoding."""
    gains = {0: 1.0}
    for length in range(1, len(survival) + 1):
        time = cost * length + costs.predict(RunShape(1, 1 + length))
        gains[length] = (1 + sum(survival[:length])) * costs.predict(RunShape(1, 1)) / time
    best = max(gains, key=gains.__getitem__)
    return best, gains[best]


@pytest.mark.parametrize("cost", [0.05, 0.5, 1.0, 2.0, 4.0, 8.0])
def test_a_learned_drafter_runs_as_far_as_it_pays(cost: float) -> None:
    length, gain = best_length(GOOD, cost, GENTLE)
    plan = auto(GENTLE).plan(Draft(), [candidate(*GOOD, cost=cost)], load=company(0), budget=8)
    assert plan == (Plan("eagle3", length) if gain >= 1.03 else None)


def test_the_lengths_that_pay_differ_with_the_cost() -> None:
    """Otherwise the test above would say nothing."""
    found = {best_length(GOOD, cost, GENTLE)[0] for cost in (0.05, 0.5, 1.0, 2.0, 4.0, 8.0)}
    assert {0, 4} < found


def test_a_plan_keeps_to_the_budget_and_to_what_the_drafter_can() -> None:
    cheap = candidate(*(0.99,) * 4, cost=0.01)
    assert auto(FREE).plan(Draft(), [cheap], load=company(0), budget=2) == Plan("eagle3", 2)
    assert auto(FREE).plan(Draft(), [cheap], load=company(0), budget=16) == Plan("eagle3", 4)
    assert auto(FREE).plan(Draft(), [cheap], load=company(0), budget=0) is None
    assert auto(FREE).plan(Draft(), [], load=company(0), budget=4) is None
    tree = candidate(*(0.99,) * 4, cost=0.01, tree=True)
    assert auto(FREE).plan(Draft(), [tree], load=company(0), budget=16) == Plan("eagle3", 16)


def test_what_is_free_and_better_spares_the_run() -> None:
    head = candidate(*GOOD, cost=1.0)
    assert auto(FREE).plan(chain(0.9, 0.9, 0.9), [head], load=company(0), budget=4) is None
    assert auto(FREE).plan(chain(0.3), [head], load=company(0), budget=4) is not None


def test_of_several_the_one_that_pays_most_runs() -> None:
    dear, cheap = candidate(*GOOD, cost=2.0), candidate(*GOOD, cost=0.5, name="mtp")
    plan = auto(FREE).plan(Draft(), [dear, cheap], load=company(0), budget=4)
    assert plan is not None
    assert plan.name == "mtp"


def test_company_waits_for_a_draft_as_well() -> None:
    """The same drafter pays alone, and not where three others would wait for it too."""
    head = candidate(0.5, cost=3.0)
    assert auto(FREE).plan(Draft(), [head], load=company(0), budget=1) == Plan("eagle3", 1)
    assert auto(FREE).plan(Draft(), [head], load=company(3), budget=1) is None


def test_a_drafter_that_does_not_pay_is_tried_within_a_share_of_the_time() -> None:
    """One that is slow and always wrong: what it costs stays below a hundredth or so."""
    controller, head = auto(FREE), candidate(0.01, 0.0001, cost=5.0)
    tries = [controller.plan(Draft(), [head], company(0), 8) for _ in range(2000)]
    spent = sum(head.costs.predict(plan.budget) for plan in tries if plan is not None)
    assert 0 < spent <= 0.011 * 2000 * FREE.predict(RunShape(1, 1))


def test_a_drafter_comes_back_when_it_pays_again() -> None:
    controller = auto(FREE)
    head = dataclasses.replace(
        candidate(cost=1.0), longest=4, survival=Survival(Published((0.6,)), 4.0, 0.9)
    )
    right, rounds = Draft((1, 2, 3, 4)), 0

    def round_(said: tuple[int, ...]) -> bool:
        plan = controller.plan(Draft(), [head], company(0), 4)
        if plan is not None:
            head.survival.observe(right.first(plan.budget), said)
        return plan is not None

    for _ in range(300):
        round_((9,))
    assert sum(round_((9,)) for _ in range(100)) <= 12, "it is hardly tried"
    while rounds < 400 and sum(round_((1, 2, 3, 4, 5)) for _ in range(10)) < 10:
        rounds += 10
    assert rounds < 400


def test_what_was_drawn_is_cut_before_a_token_is_looked_at() -> None:
    """Whether a drawn token is verified may depend on what comes before it, not on itself: a sure
    token behind a doubtful one must not save it."""
    doubtful = Draft((1, 2), None, PROPOSALS[:2], (0.01, 0.99), "x")
    costs = RunCosts.by_width({2: 10.0, 3: 10.2, 32: 16.0})
    assert auto(costs).select(doubtful, load=company(1)).tokens == ()
    sure = Draft((1, 2, 3), None, PROPOSALS[:3], (0.9, 0.9, 0.01), "x")
    assert auto(costs).select(sure, load=company(1)).tokens == (1, 2)


def test_a_cut_keeps_who_proposed_what() -> None:
    mixed = FORKED._replace(sources=("a", "b", "a", "b", "a"))
    costs = RunCosts.by_width({2: 10.0, 12: 10.0 + 10 * 0.7})
    assert auto(costs).select(mixed, load=company(1)).sources == ("a", "a", "b", "a")


def test_high_acceptance_that_takes_longer_is_turned_off() -> None:
    """vllm#35387: 87 % accepted, and yet slower. The time of every run counts."""
    controller, head = auto(FREE), candidate(*(0.87**depth for depth in range(1, 5)), cost=0.5)
    assert controller.plan(Draft(), [head], company(0), 4) == Plan("eagle3", 4)
    for _ in range(100):
        head.costs.observe(4, 40.0)
    plans = [controller.plan(Draft(), [head], company(0), 4) for _ in range(1000)]
    assert sum(plan is not None for plan in plans) <= 10


def test_text_that_nobody_can_foresee_is_hardly_drafted() -> None:
    """llama.cpp#23052: creative writing at 0.9 of the speed of plain decoding."""
    controller = auto(GENTLE)
    head = dataclasses.replace(
        candidate(cost=1.0), longest=4, survival=Survival(Published((0.6,)), 4.0, 0.9)
    )
    spent, rounds = 0.0, 600
    for index in range(rounds):
        plan = controller.plan(Draft(), [head], company(0), 4)
        if plan is not None:
            spent += head.costs.predict(plan.budget)
            said = (1, 9) if index % 20 == 0 else (9,)
            head.survival.observe(Draft((1, 2, 3, 4)).first(plan.budget), said)
    assert spent < 0.03 * rounds * GENTLE.predict(RunShape(1, 1))
