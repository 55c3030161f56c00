"""Residuals, entropies and draws of distributions with a tail."""

from __future__ import annotations

import math

import numpy as np
import pytest

from models.draft import Proposal
from models.sampling.distribution import Distribution, Draw, _inverted
from models.sampling.noise import Purpose
from models.sampling.parameters import Sampling
from models.sampling.sampler import Sampler
from tests.sampling_support import given

LOGITS = np.log([0.3, 0.25, 0.2, 0.1, 0.08, 0.05, 0.02])
P = np.exp(LOGITS)


def distribution(listed: int = 3) -> Distribution:
    return Sampler(Sampling(temperature=1, seed=1), prompt=[0]).distribution(given(LOGITS, listed))


@pytest.mark.parametrize("token", [0, 2, 5])
def test_rejecting_a_one_hot_draft_leaves_the_others(token: int) -> None:
    expected = P.copy()
    expected[token] = 0
    left = distribution().without(token)
    assert left.dense(7) == pytest.approx(expected / expected.sum(), abs=1e-6)
    opened = distribution()
    opened.resolve()
    assert opened.without(token).dense(7) == pytest.approx(expected / expected.sum(), abs=1e-6)


def test_rejecting_one_hot_drafts_in_turn() -> None:
    expected = P.copy()
    expected[[1, 6]] = 0
    assert distribution().without(6).without(1).dense(7) == pytest.approx(
        expected / expected.sum(), abs=1e-6
    )


def test_rejecting_a_sampled_draft_leaves_what_p_has_more() -> None:
    q = np.array([0.5, 0.1, 0.0, 0.0, 0.3, 0.0, 0.1])
    places = np.flatnonzero(q)
    residual = np.maximum(P - q, 0)
    found = distribution().minus(Proposal(places, q[places])).dense(7)
    assert found == pytest.approx(residual / residual.sum(), abs=1e-6)
    again = np.maximum(residual / residual.sum() - q, 0)
    twice = distribution().minus(Proposal(places, q[places])).minus(Proposal(places, q[places]))
    assert twice.dense(7) == pytest.approx(again / again.sum(), abs=1e-6)


def test_draws_follow_the_distribution_listed_tokens_and_tail_alike() -> None:
    n = 6000
    drawn = np.bincount(
        [distribution().draw(Draw(11, position, Purpose.TOKEN)) for position in range(n)],
        minlength=7,
    )
    assert (np.abs(drawn - n * P) < 4 * np.sqrt(n * P * (1 - P))).all()


def test_a_token_without_mass_is_never_drawn_from_the_tail() -> None:
    weights = np.zeros(700, dtype=np.float32)
    weights[[3, 300, 699]] = [1e-8, 1.0, 1e-8]
    assert {_inverted(weights, u) for u in (1e-300, 1e-9, 0.5, 1 - 1e-12, 1.0)} == {3, 300, 699}


def test_entropy_and_probability() -> None:
    assert distribution().entropy() == pytest.approx(-(P * LOGITS).sum(), abs=1e-6)
    assert distribution().probability(5) == pytest.approx(0.05, abs=1e-6)
    assert Distribution.single(4).entropy() == 0
    assert Distribution.single(4).probability(4) == 1


def test_a_drafter_draws_from_its_listed_tokens() -> None:
    sampler = Sampler(Sampling(temperature=1, seed=5), prompt=[0])
    token, proposal = sampler.draft(given(LOGITS, 3), [], shared=True)
    assert proposal.ids.tolist() == [0, 1, 2]
    assert proposal.probabilities == pytest.approx([0.4, 1 / 3, 4 / 15], abs=1e-6)
    assert proposal.of(token) > 0
    assert proposal.of(6) == 0
    assert proposal.entropy() == pytest.approx(
        -sum(q * math.log(q) for q in (0.4, 1 / 3, 4 / 15)), abs=1e-6
    )
    assert sampler.opened == 0


def test_a_drafter_draws_even_where_nothing_listed_is_left() -> None:
    banned = tuple((token, -100.0) for token in range(3))
    sampler = Sampler(Sampling(temperature=1, top_k=1, logit_bias=banned, seed=5), prompt=[0])
    token, proposal = sampler.draft(given(LOGITS, 3), [], shared=True)
    assert (token, proposal.ids.tolist(), proposal.probabilities.tolist()) == (3, [3], [1.0])


def test_rejecting_a_draft_whose_q_is_p_leaves_p() -> None:
    same = Proposal(np.arange(7), distribution().dense(7))
    left = distribution().minus(Proposal(same.ids, same.probabilities * (1 + 1e-12)))
    assert left.draw(Draw(1, 2, Purpose.RESIDUAL)) in range(7)
    assert left.dense(7) == pytest.approx(P, abs=1e-6)
