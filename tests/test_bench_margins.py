"""Margins: what has to change between two logits for another token to be drawn."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from bench.margins import Scores, distance_inside, penalised, score
from bench.rows import HostRows, host_row
from models.draft import Draft
from models.sampling.parameters import Sampling
from models.sampling.sampler import Sampler
from models.verification import accept, make_rule

VOCABULARY, TOP_K = 40, 8
PROMPT, ANSWER = (1, 2, 3, 2), (5, 6, 5)
SAMPLINGS = (
    Sampling(),
    Sampling(repetition_penalty=1.3, presence_penalty=0.4, frequency_penalty=0.2),
    Sampling(temperature=0.7, seed=3),
    Sampling(temperature=1.3, top_k=5, seed=3),
    Sampling(temperature=1.0, top_p=0.6, seed=3),
    Sampling(temperature=1.0, min_p=0.2, seed=3),
    Sampling(temperature=0.9, top_p=0.8, repetition_penalty=1.5, frequency_penalty=-0.3, seed=3),
)


def random_logits(index: int, scale: float = 2.0) -> NDArray[np.float32]:
    normal = np.random.default_rng(index).standard_normal(VOCABULARY)
    return (scale * normal).astype(np.float32)


def drawn(logits: NDArray[np.float32], sampling: Sampling) -> int:
    """By the rule that margins explain."""
    sampler = Sampler(sampling, PROMPT)
    sampler.commit(ANSWER)
    rows = HostRows([host_row(logits, TOP_K)])
    return accept(Draft(), rows, sampler, make_rule("coupled")).bonus


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_the_largest_score_inside_is_what_is_drawn(sampling: Sampling) -> None:
    for index in range(60):
        logits = random_logits(index)
        one = sampling if sampling.greedy else replace(sampling, seed=index)
        scores = score(logits, TOP_K, one, PROMPT, ANSWER)
        best = np.where((scores.inside > 0) & (scores.picked == 0), scores.values, -np.inf)
        assert int(best.argmax()) == drawn(logits, one)


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_inside_is_what_the_sampler_keeps(sampling: Sampling) -> None:
    if sampling.greedy:
        return
    for index in range(50):
        logits = random_logits(index)
        sampler = Sampler(sampling, PROMPT)
        sampler.commit(ANSWER)
        kept = sampler.distribution(host_row(logits, TOP_K)).dense(VOCABULARY) > 0
        processed = penalised(logits, sampling, PROMPT, ANSWER)
        assert ((distance_inside(processed, sampling) > 0) == kept).all()


def test_a_greedy_margin_is_the_difference_of_two_logits() -> None:
    logits = np.zeros(VOCABULARY, dtype=np.float32)
    logits[[4, 7, 9]] = 3.0, 2.25, -1.0
    scores = score(logits, TOP_K, Sampling(), (), ())
    assert scores.margin(4, 7) == 0.75
    assert scores.margin(4, 9) == 4.0


@pytest.mark.parametrize("scale", [1.0, 3.0])
def test_a_change_of_the_margin_draws_the_other_token(scale: float) -> None:
    """Where nothing is cut and both are listed, the margin is the least change that does it."""
    sampling = Sampling(temperature=0.8)
    for index in range(60):
        logits, one = random_logits(index, scale), replace(sampling, seed=index)
        first = drawn(logits, one)
        second = int(host_row(logits, TOP_K).ids[index % 3])
        scores = score(logits, TOP_K, one, PROMPT, ANSWER)
        margin = scores.margin(first, second)
        if second == first or margin >= min(scores.listing[first], scores.listing[second]):
            continue
        for change, expected in ((margin + 1e-3, second), (margin - 1e-3, first)):
            changed = logits.copy()
            changed[second] += np.float32(change)
            others = drawn(changed, one)
            # A token raised past others may push one of them out of the list.
            assert others == expected or first not in host_row(changed, TOP_K).ids


def test_a_token_at_the_edge_of_the_nucleus_is_near_however_its_noise_is() -> None:
    probabilities = np.array([0.5, 0.3001, 0.1, 0.0999])
    logits = np.full(VOCABULARY, -60.0, dtype=np.float32)
    logits[:4] = np.log(probabilities)
    sampling = Sampling(temperature=1.0, top_p=0.8, seed=1)
    scores = score(logits, TOP_K, sampling, (), ())
    # The third is out by a hair: 0.8001 have passed before it.
    assert -1e-3 < scores.inside[2] < 0
    assert scores.inside[1] > 1
    assert np.isinf(scores.inside[0])


def test_whoever_drops_out_leaves_the_draw_to_the_next() -> None:
    values = np.array([5.0, 1.0, 0.5])
    inside = np.array([0.01, 2.0, 2.0])
    free, none = np.full(3, np.inf), np.zeros(3)
    scores = Scores(values, inside, free, none)
    assert scores.margin(0, 1) == 0.01
    assert scores.margin(0, 2) == 0.5
    out = Scores(values, np.array([3.0, 2.0, -0.02]), free, none)
    assert out.margin(0, 1) == 3.0
    assert out.margin(1, 2) == 0.5


def test_penalties_are_those_of_the_definition() -> None:
    logits = np.array([2.0, -2.0, 1.0, 0.0], dtype=np.float32)
    sampling = Sampling(
        repetition_penalty=2.0,
        presence_penalty=0.5,
        frequency_penalty=0.25,
        logit_bias=((3, 1.5),),
    )
    changed = penalised(logits, sampling, (0,), (1, 1))
    assert changed.tolist() == [1.0, -4.0 - 0.5 - 0.5, 1.0, 1.5]
