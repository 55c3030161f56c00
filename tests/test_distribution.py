"""Answers are distributed as the target's: every rule, shape and parameter against enumeration.

20,000 answers of three tokens per configuration, with fixed seeds. `test_mutants` shows that these
tests fail where the code is wrong.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from bench.distribution import CROSSED, TEMPERATURES, Judged, cross_product, findings
from bench.draws import PROMPT, Configuration, exact_answers, judge
from bench.enumeration import probabilities_behind
from bench.goodness import p_value, survival
from bench.rows import host_row
from bench.tiny_model import SHOWN, TinyModel, drafter_of, random_model
from models.sampling.parameters import Sampling
from models.sampling.sampler import Sampler
from tests.distribution_support import LEAST_P, SAMPLES, configurations, read_model


@pytest.fixture(scope="module")
def target(letters_package: Path) -> TinyModel:
    return read_model(letters_package)


@pytest.fixture(scope="module")
def drafter(target: TinyModel) -> TinyModel:
    return drafter_of(target, seed=5)


@pytest.mark.parametrize("configuration", configurations(), ids=lambda item: item.name)
def test_answers_are_distributed_as_the_targets(
    configuration: Configuration, target: TinyModel, drafter: TinyModel
) -> None:
    """PITFALLS: sampling. One-hot and sampled drafts, every processor on every row."""
    p, drawn = judge(configuration, target, drafter, SAMPLES)
    assert p > LEAST_P
    assert drawn.counts.sum() == SAMPLES
    # Drafts were verified, not only ignored: accepted and rejected ones.
    assert drawn.accepted > 0
    assert SAMPLES < drawn.rounds < 3 * SAMPLES


def test_the_host_sees_part_of_a_row_and_opens_the_rest_where_it_must(
    target: TinyModel, drafter: TinyModel
) -> None:
    assert SHOWN < target.vocab_size <= 32
    outside = Configuration("coupled", False, True, 1.0)
    inside = Configuration("coupled", False, True, 1.0, ("narrow top-k",))
    assert judge(outside, target, drafter, 500)[1].opened > 0
    assert judge(inside, target, drafter, 500)[1].opened == 0


def test_configurations_have_names_of_their_own() -> None:
    for listed in (configurations(), cross_product()):
        assert len({configuration.name for configuration in listed}) == len(listed)


def test_the_cross_product_has_every_subset_of_the_steps() -> None:
    assert len(cross_product()) == 2 * 2 * 2 * len(TEMPERATURES) * 2 ** len(CROSSED)
    assert set(cross_product()) >= {
        Configuration("classic", True, True, 1.5, ("top-k", "top-p", "min-p", "penalties", "bias")),
        Configuration("coupled", False, False, 0.5),
    }


def test_enumerated_answers_are_a_distribution(target: TinyModel) -> None:
    for configuration in configurations():
        exact = exact_answers(configuration, target)
        assert exact.shape == (target.vocab_size,) * 3
        assert exact.sum() == pytest.approx(1)


def test_enumeration_follows_the_parameters_by_hand() -> None:
    logits, prompt, answer = [2.0, 1.0, -1.0, 0.0], (0,), (2, 2)
    changed = Sampling(
        temperature=0.5,
        repetition_penalty=2.0,
        presence_penalty=0.5,
        frequency_penalty=0.25,
        logit_bias=((3, 1.0), (3, 0.5)),
    )
    # 2 / 2; 1; -1 * 2 - 0.5 - 2 * 0.25; 0 + 1.5. At temperature 0.5 all double.
    weights = np.exp([2.0, 2.0, -6.0, 3.0])
    found = probabilities_behind(logits, changed, prompt, answer)
    assert found == pytest.approx(weights / weights.sum())


@pytest.mark.parametrize(
    ("sampling", "expected"),
    [
        (Sampling(temperature=1.0, top_k=2), (5 / 8, 3 / 8, 0, 0)),
        # 0.5 alone is not 0.6 of the mass; 0.5 + 0.3 is.
        (Sampling(temperature=1.0, top_p=0.6), (5 / 8, 3 / 8, 0, 0)),
        (Sampling(temperature=1.0, top_p=0.49), (1, 0, 0, 0)),
        (Sampling(temperature=1.0, top_p=0.0), (1, 0, 0, 0)),
        # At least 0.29 times as likely as the most likely: 0.145.
        (Sampling(temperature=1.0, min_p=0.29), (0.5 / 0.95, 0.3 / 0.95, 0.15 / 0.95, 0)),
        # Of the two that top-k leaves, the first has 0.625.
        (Sampling(temperature=1.0, top_k=2, top_p=0.62), (1, 0, 0, 0)),
    ],
)
def test_enumeration_cuts_where_the_definitions_say(
    sampling: Sampling, expected: tuple[float, ...]
) -> None:
    logits = [math.log(p) for p in (0.5, 0.3, 0.15, 0.05)]
    found = probabilities_behind(logits, sampling, (), ())
    assert found == pytest.approx(expected, abs=1e-6)


def test_processing_equals_enumeration_on_every_row(target: TinyModel) -> None:
    """Every processor reaches every row, also those behind drafts (vllm#42744, sglang#33643)."""
    for configuration in configurations():
        sampling = configuration.sampling()
        sampler = Sampler(sampling, PROMPT)
        sampler.commit((7,))
        for ahead in ((), (7,), (5, 5), (0, 3)):
            row = host_row(target.row((7, *ahead)).logits, SHOWN)
            found = sampler.distribution(row, ahead).dense(target.vocab_size)
            exact = probabilities_behind(row.logits.tolist(), sampling, PROMPT, (7, *ahead))
            assert found == pytest.approx(exact, abs=1e-5), (configuration.name, ahead)


@pytest.mark.parametrize(
    ("statistic", "freedom", "p"),
    [
        (3.841458820694124, 1, 0.05),  # tables
        (124.34211340400407, 100, 0.05),
        (10.0, 2, math.exp(-5)),  # closed forms of even degrees
        (6.0, 4, math.exp(-3) * (1 + 3)),
        (0.0, 3, 1.0),
        (1.0, 0, 1.0),
    ],
)
def test_the_chi_square_law_is_known(statistic: float, freedom: int, p: float) -> None:
    assert survival(statistic, freedom) == pytest.approx(p, rel=1e-9)


def test_p_of_counts_by_hand() -> None:
    # (12 - 10)^2 / 10 + (8 - 10)^2 / 10 = 0.8, one degree: erfc(sqrt(0.4)).
    p = p_value(np.array([12, 8]), np.array([0.5, 0.5]))
    assert p == pytest.approx(math.erfc(math.sqrt(0.4)))


def test_rare_cells_are_judged_together() -> None:
    probabilities = np.array([0.4, 0.44, *[0.02] * 8])
    counts = np.array([40, 44, 16, *[0] * 7])
    assert p_value(counts, probabilities) == 1.0
    # Pooled they expect 4 of 100: the next rarest cell joins them.
    probabilities = np.array([0.5, 0.46, 0.02, 0.02])
    # 50 expected, 50 in all others.
    p = p_value(np.array([60, 40, 0, 0]), probabilities)
    assert p == pytest.approx(math.erfc(math.sqrt((100 / 50 + 100 / 50) / 2)))


def test_an_impossible_answer_has_no_chance() -> None:
    assert p_value(np.array([10_000, 1]), np.array([1.0, 0.0])) == 0.0


def test_p_values_of_true_counts_are_uniform() -> None:
    noise = np.random.default_rng(0)
    probabilities = noise.dirichlet(np.ones(300))
    found = [p_value(noise.multinomial(5000, probabilities), probabilities) for _ in range(400)]
    deciles = np.histogram(found, bins=10, range=(0, 1))[0]
    assert p_value(deciles, np.full(10, 0.1)) > LEAST_P


@pytest.mark.parametrize(("p", "held"), [(2e-4, True), (0.5e-4, False)])
def test_the_suite_judges_the_least_p(p: float, held: bool) -> None:
    chain = Configuration("classic", False, True, 1.0)
    tree = Configuration("coupled", True, False, 1.0, ("bias",))
    judged = [Judged(chain, 100, 0.4, 200, 50, 7), Judged(tree, 100, p, 100, 90, 0)]
    found = findings(judged, 100)
    assert found.held is held
    (promise,) = found.promises
    assert promise.note == "2 configurations; by chance one is below in 0.0% of runs"
    table, summary = found.tables
    assert list(table.header) == ["", "classic chain", "coupled one-hot tree"]
    assert list(table.rows[0]) == ["temperature 1", "0.4", "-"]
    assert list(summary.rows[0]) == ["classic chain", "1", "0.4", "0.25", "2.00", "0.07"]


def test_random_models_are_the_same_every_time() -> None:
    assert (random_model(1).logits == random_model(1).logits).all()
    assert (random_model(1).logits != random_model(2).logits).any()
