"""How many draft tokens a round verifies."""

from __future__ import annotations

import pytest

from gateway.engine.controller import LONGEST_DRAFT, Controller
from gateway.engine.costs import RunCosts
from gateway.engine.requests import Speculation

FREE = RunCosts({2: 10.0, 32: 10.0})
STEEP = RunCosts({2: 10.0, 4: 30.0, 32: 310.0})
"""Every further token costs as much as plain decoding: drafting can at best break even."""
GENTLE = RunCosts({2: 10.0, 12: 20.0})


def auto(costs: RunCosts, length: int | None = None) -> Controller:
    return Controller(Speculation(length=length), costs)


@pytest.mark.parametrize("drafter", ["ngram", "off"])
@pytest.mark.parametrize("policy", ["auto", "fixed", "off"])
def test_off_by_policy_or_by_drafter_asks_for_nothing(policy: str, drafter: str) -> None:
    off = "off" in (policy, drafter)
    controller = Controller(Speculation(drafter, policy, 3), FREE)  # type: ignore[arg-type]
    assert controller.policy == ("off" if off else policy)
    assert controller.budget(10) == (0 if off else 3)


def test_a_budget_is_what_fits_the_request_and_the_room() -> None:
    assert auto(FREE).budget(1000) == LONGEST_DRAFT
    assert auto(FREE, length=5).budget(1000) == 5
    assert auto(FREE, length=5).budget(2) == 2
    assert auto(FREE, length=0).budget(10) == 0
    assert auto(FREE).budget(0) == auto(FREE).budget(-1) == 0


def test_fixed_verifies_whatever_was_proposed() -> None:
    controller = Controller(Speculation(policy="fixed", length=4), STEEP)
    assert controller.length((0.01, 0.01, 0.01), others=3) == 3


def test_auto_takes_all_of_a_draft_that_costs_nothing() -> None:
    assert auto(FREE).length((0.5, 0.5, 0.5), others=0) == 3


def test_auto_never_drafts_where_it_cannot_pay() -> None:
    assert auto(STEEP).length((0.9,) * 8, others=1) == 0
    assert auto(FREE).length((), others=0) == 0


def test_auto_needs_a_gain_beyond_noise() -> None:
    barely = RunCosts({2: 10.0, 3: 10.01, 32: 10.3})
    assert auto(barely).length((0.02,), others=1) == 0
    assert auto(barely).length((0.04,), others=1) == 1


def test_auto_takes_the_token_that_pads_a_lone_stream_whatever_it_promises() -> None:
    assert auto(STEEP).length((0.01, 0.9), others=0) == 1
    assert auto(STEEP).length((0.01, 0.9), others=1) == 0


def test_auto_maximises_expected_tokens_per_millisecond() -> None:
    """Against the definition, E[tau] / T, over all lengths."""
    confidence = (0.95, 0.9, 0.85, 0.6, 0.5, 0.3, 0.2, 0.1)
    rates = []
    for length in range(len(confidence) + 1):
        survival, tau = 1.0, 1.0
        for probability in confidence[:length]:
            survival *= probability
            tau += survival
        rates.append(tau / GENTLE.predict(length + 1))
    best = max(range(len(rates)), key=rates.__getitem__)
    assert 0 < best < len(confidence)
    assert auto(GENTLE).length(confidence, others=0) == best


def test_company_in_the_run_makes_a_token_dearer_or_cheaper_by_the_curve() -> None:
    """Alone a second token is dear, behind the knee it is nearly free."""
    knee = RunCosts({2: 10.0, 4: 40.0, 5: 40.0, 32: 41.0})
    confidence = (0.8, 0.8)
    assert auto(knee).length(confidence, others=1) == 0
    assert auto(knee).length(confidence, others=4) == 2
