"""The policies by name, and what each asks for and offers."""

from __future__ import annotations

import pytest

from gateway.engine.costs.draft_costs import DraftCosts
from gateway.engine.costs.run_costs import RunCosts
from gateway.engine.costs.shape import Load
from gateway.engine.policies.base import LONGEST_DRAFT, Candidate, Plan, Policy
from gateway.engine.policies.confidence import ConfidencePolicy
from gateway.engine.policies.ema_tiers import EmaTiersPolicy
from gateway.engine.policies.fixed import FixedPolicy
from gateway.engine.policies.make import make_policy
from gateway.engine.policies.slo import SloPolicy
from gateway.engine.requests import POLICIES, Speculation, named_policy
from models.draft import Draft
from models.drafters.survival import Published, Survival

STEEP = RunCosts.by_width({2: 10.0, 4: 30.0, 32: 310.0})
ALONE = Load()
RIGHT = Draft(tuple(range(1, 9)), source="x")


def chain(*confidence: float) -> Draft:
    return Draft(tuple(range(1, 1 + len(confidence))), confidence=confidence, source="x")


def candidate(*survival: float, cost: float = 1.0) -> Candidate:
    costs = DraftCosts({length: cost * length for length in range(1, 9)})
    return Candidate("eagle3", len(survival), costs, Survival(Published(survival), 1.0, 1.0))


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_is_made_by_its_name(name: str) -> None:
    policy = named_policy(name)
    made = make_policy(Speculation(policy=policy, length=3, tpot_ms=20.0), STEEP)
    assert made.name == name
    assert make_policy(Speculation("off", policy, 3, tpot_ms=20.0), STEEP).name == "off"


@pytest.mark.parametrize("name", POLICIES)
def test_a_budget_fits_the_request_and_the_room(name: str) -> None:
    made = make_policy(Speculation(policy=named_policy(name), length=3, tpot_ms=20.0), STEEP)
    drafts = name != "off"
    assert made.budget(1000) == 3 * drafts
    assert made.budget(2) == 2 * drafts
    assert made.budget(0) == made.budget(-1) == 0


def test_auto_is_another_name_of_cost() -> None:
    assert named_policy("auto") == "cost"


@pytest.mark.parametrize("name", ["fixed", "adasd", "ema-tiers"])
def test_these_verify_all_that_was_drafted(name: str) -> None:
    made = make_policy(Speculation(policy=named_policy(name), length=8), STEEP)
    offer = made.offer(chain(0.01, 0.01, 0.01), ALONE)
    assert (offer.least, offer.first(3)) == (3, offer.draft)


@pytest.mark.parametrize("name", ["fixed", "adasd", "ema-tiers", "confidence"])
def test_these_run_a_drafter_wherever_nothing_better_is_free(name: str) -> None:
    made = make_policy(Speculation(policy=named_policy(name), length=8), STEEP)
    dear = candidate(0.3, 0.1, cost=100.0)
    assert made.plan(Draft(), [dear], ALONE, 8) == Plan("eagle3", 2)
    assert made.plan(chain(0.2), [dear], ALONE, 8) == Plan("eagle3", 2)
    assert made.plan(chain(0.9), [dear], ALONE, 8) is None
    assert made.plan(Draft(), [candidate(0.0)], ALONE, 8) == Plan("eagle3", 1)
    assert made.plan(Draft(), [], ALONE, 8) is None
    assert made.plan(Draft(), [dear], ALONE, 0) is None


def test_fixed_asks_for_the_longest_where_no_length_is_given() -> None:
    assert FixedPolicy(None).budget(1000) == LONGEST_DRAFT


def run_rounds(policy: EmaTiersPolicy, accepted: int, rounds: int) -> list[int]:
    """The tier after each of `rounds` that accept `accepted` tokens, or all of the draft."""
    tiers = []
    for _ in range(rounds):
        draft = RIGHT.first(policy.budget(1000))
        said = (*draft.tokens[:accepted], 99)
        policy.observe(draft, said)
        tiers.append(policy.tier)
    return tiers


def test_tiers_begin_in_the_middle_and_wait_for_some_rounds() -> None:
    policy = EmaTiersPolicy(None)
    assert run_rounds(policy, 8, 15) == [3] * 14 + [7]


def test_tiers_fall_with_what_is_accepted_and_come_back() -> None:
    policy = EmaTiersPolicy(None)
    assert run_rounds(policy, 0, 15)[-1] == 1
    # From a mean near 0 five rounds of one accepted token bring it to 0.67, above 1 - 0.5.
    assert run_rounds(policy, 8, 5)[-1] == 3
    assert run_rounds(policy, 8, 40)[-1] == 7


def test_a_tier_is_kept_between_its_thresholds() -> None:
    """Two accepted of three: above 1 - 0.75, below 3 - 0.5."""
    assert set(run_rounds(EmaTiersPolicy(None), 2, 60)) == {3}


def test_rounds_without_a_draft_teach_tiers_nothing() -> None:
    policy = EmaTiersPolicy(None)
    for _ in range(100):
        policy.observe(Draft(), (5,))
    assert policy.tier == 3


def test_a_length_bounds_every_tier() -> None:
    policy = EmaTiersPolicy(2)
    assert policy.budget(100) == 2


def test_confidence_offers_by_what_the_drafter_is_sure_of() -> None:
    policy = ConfidencePolicy(None, STEEP)
    offer = policy.offer(chain(0.9, 0.5), ALONE)
    assert (list(offer.order), list(offer.worth), offer.least) == ([0, 1], [0.9, 0.45], 0)


def test_slo_says_what_its_row_needs() -> None:
    """Three tokens behind the first took 70 ms: at 20 ms each a round of 30 ms must bring two."""
    times = iter([1.0, 1.07])
    policy = SloPolicy(None, STEEP, 20.0, clock=lambda: next(times))
    policy.observe(Draft(), (0,))
    policy.observe(Draft(), (1, 2))
    policy.observe(Draft(), (3,))
    need = policy.offer(chain(0.9), ALONE).need
    assert need is not None
    assert need.tokens == 3
    assert need.elapsed_ms == pytest.approx(70.0)
    assert need.expected_tokens(30.0) == pytest.approx(2.0)


def lying(policy: Policy, rounds: int) -> list[float]:
    """What the first token is worth to the run, round by round, of a drafter that is sure and
    always wrong."""
    worth = []
    for _ in range(rounds):
        draft = chain(0.99, 0.99)
        worth.append(policy.offer(draft, ALONE).worth[0])
        policy.observe(draft, (77,))
    return worth


@pytest.mark.parametrize("name", ["cost", "confidence", "slo"])
def test_a_drafter_that_is_sure_and_wrong_is_soon_not_believed(name: str) -> None:
    policy = make_policy(Speculation(policy=named_policy(name), tpot_ms=20.0), STEEP)
    worth = lying(policy, 8)
    assert worth[0] == 0.99
    assert worth[2] < 0.3
    assert worth[-1] < 0.1
    for _ in range(40):
        policy.observe(chain(0.99, 0.99), (1, 2, 5))
    assert policy.offer(chain(0.99), ALONE).worth[0] > 0.9, "and is believed again"
