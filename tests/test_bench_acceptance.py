"""Acceptance against mathematics: the formulas by brute force, the measurement on known rows."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from bench import one_step as measuring
from bench.__main__ import main
from bench.acceptance import _agreement, _equal
from bench.alpha import Drafted, alpha, alpha_error, difference_error
from bench.coupling import expected, shared_noise_terms
from bench.one_step import OneStep, Position, Tally
from bench.rows import host_row
from models.draft import Draft
from models.sampling.parameters import Sampling
from models.sampling.sampler import Sampler
from models.verification import Outcome, Rows, Rule, accept

Floats = NDArray[np.float64]


def pairs(count: int, size: int = 7) -> list[tuple[Floats, Floats]]:
    """Random distributions, every second one with tokens that the other does not have."""
    generator = np.random.default_rng(0)
    found = []
    for index in range(count):
        p, q = generator.dirichlet(np.full(size, 0.6), size=2)
        if index % 2:
            p[0], q[1] = 0, 0
        found.append((p / p.sum(), q / q.sum()))
    return found


def test_shared_noise_is_the_formula_written_out() -> None:
    for p, q in pairs(100):
        terms = [
            1 / sum(max(p[y] / p[x], q[y] / q[x]) for y in range(p.size)) if p[x] * q[x] else 0.0
            for x in range(p.size)
        ]
        assert shared_noise_terms(p, q) == pytest.approx(terms, abs=1e-12)


def test_equal_distributions_always_agree_and_disjoint_ones_never() -> None:
    p = np.array([0.5, 0.25, 0.25, 0.0, 0.0])
    assert expected(p, p).classic == pytest.approx(1)
    assert expected(p, p).coupled == pytest.approx(1)
    other = np.array([0.0, 0.0, 0.0, 0.5, 0.5])
    assert expected(p, other).classic == 0
    assert expected(p, other).coupled == 0


def test_a_deterministic_draft_is_accepted_with_its_probability_by_both() -> None:
    p, q = np.array([0.5, 0.3, 0.2]), np.array([0.0, 1.0, 0.0])
    assert expected(p, q).classic == pytest.approx(0.3)
    assert expected(p, q).coupled == pytest.approx(0.3)


def test_the_bounds_hold() -> None:
    for p, q in pairs(200):
        bounds = expected(p, q)
        assert bounds.within()
        assert bounds.coupled < bounds.classic + 1e-12


def test_the_formulas_are_what_shared_noise_does() -> None:
    """By simulation, with every token listed and with three of them behind one candidate."""
    generator = np.random.default_rng(1)
    trials = 100_000
    listed = np.ones(7, dtype=np.bool_)
    listed[[1, 4, 5]] = False
    tail = np.flatnonzero(~listed)
    for p, q in pairs(4):
        noise = generator.exponential(size=(trials, 8))
        with np.errstate(divide="ignore"):
            draft = (noise[:, :7] / q).argmin(1)
            alone = (noise[:, :7] / p).argmin(1)
            behind = np.append(np.where(listed, p, 0), p[tail].sum())
            candidate = (noise / behind).argmin(1)
        picked = generator.choice(tail, size=trials, p=p[tail] / p[tail].sum())
        together = np.where(candidate == 7, picked, candidate)
        bounds = expected(p, q, listed)
        for target, probability in ((alone, bounds.coupled), (together, bounds.listed)):
            error = np.sqrt(probability * (1 - probability) / trials)
            assert abs((target == draft).mean() - probability) < 4 * error


def at_random_rows(seeds: int, count: int, sampling: Sampling) -> OneStep:
    generator = np.random.default_rng(2)
    one_step = OneStep(sampling, seeds)
    for index in range(count):
        logits = generator.standard_normal((2, 64)).astype(np.float32) * 2
        logits[1] = (logits[0] + logits[1]) / 2
        # Its last token occurred before, so that the n-gram drafter has something to say.
        prompt = (*range(10), index % 10)
        position = Position(prompt, (3,) * (index % 3), *(host_row(row, 16) for row in logits))
        one_step.at(position)
    return one_step


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(temperature=0.8, seed=7),
        Sampling(temperature=1.5, seed=7),
        Sampling(temperature=1.0, top_p=0.9, repetition_penalty=1.2, seed=7),
    ],
)
def test_what_is_measured_is_what_is_expected(sampling: Sampling) -> None:
    one_step = at_random_rows(24, 50, sampling)
    for (drafter, rule), tally in one_step.tallies.items():
        assert tally.accepted, drafter
        assert abs(tally.deviation) < 4, (drafter, rule)
    classic, coupled = (one_step.tallies["window", rule] for rule in ("classic", "coupled"))
    assert classic.expectation > coupled.expectation
    assert all(bounds.listed <= bounds.classic for bounds in one_step.bounds)


def test_a_rule_that_accepts_too_often_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0

    def generous(draft: Draft, rows: Rows, sampler: Sampler, rule: Rule) -> Outcome:
        nonlocal calls
        calls += 1
        outcome = accept(draft, rows, sampler, rule)
        return Outcome((0,), 0) if calls % 8 == 0 else outcome

    monkeypatch.setattr(measuring, "accept", generous)
    one_step = at_random_rows(24, 50, Sampling(temperature=0.8, seed=7))
    assert max(tally.deviation for tally in one_step.tallies.values()) > 4


def test_noise_of_its_own_where_it_should_be_shared_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shared = Sampler.draft
    monkeypatch.setattr(
        Sampler, "draft", lambda self, row, ahead, shared=False: draft(self, row, ahead)
    )

    def draft(sampler: Sampler, row: object, ahead: tuple[int, ...]) -> object:
        return shared(sampler, row, ahead, shared=False)  # type: ignore[arg-type]

    one_step = at_random_rows(24, 50, Sampling(temperature=0.8, seed=7))
    assert one_step.tallies["window", "coupled"].deviation < -4
    assert abs(one_step.tallies["window", "classic"].deviation) < 4


def test_the_error_of_a_rate_is_binomial() -> None:
    tally = Tally(10, accepted=[3, 5], expected=[0.3, 0.5])
    assert tally.rate == pytest.approx(0.4)
    assert tally.expectation == pytest.approx(0.4)
    assert tally.error == pytest.approx(np.sqrt((0.21 + 0.25) / 10) / 2)
    assert tally.deviation == pytest.approx(0)


def test_few_drafts_are_not_judged_unless_no_chance_explains_them() -> None:
    def status(tally: Tally) -> str:
        return _agreement("p", tally).status

    assert status(Tally(10)) == "not measured"
    # Far off in standard errors of its own, but a single unlikely acceptance can happen.
    assert status(Tally(10, accepted=[1], expected=[1e-6])) == "not measured"
    assert status(Tally(16, accepted=[16], expected=[0.0])) == "BROKEN"
    enough = [0.5] * 10
    assert status(Tally(10, accepted=[5] * 10, expected=enough)) == "held"
    assert status(Tally(10, accepted=[7] * 10, expected=enough)) == "held"
    assert status(Tally(10, accepted=[7] * 9 + [8], expected=enough)) == "BROKEN"


def test_alpha_of_both_rules_is_judged_from_enough_answers() -> None:
    given = [Drafted(10, 4 + index % 2, 4, 9) for index in range(8)]
    other = [Drafted(10, 8 + index % 2, 4, 9) for index in range(8)]
    nothing = Drafted(0, 0, 8, 8)
    assert _equal({"classic": given, "coupled": given}).status == "held"
    apart = [*other[4:], *other[1:5]]
    assert _equal({"classic": given, "coupled": apart}).status == "BROKEN"
    few = _equal({"classic": [*given[1:], nothing], "coupled": apart})
    assert (few.status, few.note) == ("not measured", "7 answers with drafts; it takes 8")


def test_alpha_and_its_error_over_prompts() -> None:
    answers = [Drafted(10, 5, 4, 9), Drafted(20, 5, 6, 11), Drafted(0, 0, 8, 8)]
    assert alpha(answers) == pytest.approx(1 / 3)
    # Without each: 5/20, 5/10, 10/30.
    left_out = np.array([0.25, 0.5, 1 / 3])
    error = np.sqrt(2 / 3 * ((left_out - left_out.mean()) ** 2).sum())
    assert alpha_error(answers) == pytest.approx(error)
    assert difference_error(answers, answers) == 0
    assert alpha(answers[2:]) is None
    assert alpha_error(answers[:1]) is None


def test_a_run_reports_both_rules_side_by_side(tiny_package: Path, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    prompts = tmp_path / "prompts.jsonl"
    texts = ["the cat and the hat and the cat", "to be or not to be", "over and over and over"]
    prompts.write_text("".join(json.dumps({"turns": [text]}) + "\n" for text in texts))
    arguments = ["--package", str(tiny_package), "--prompts", str(prompts), "--json", str(file)]
    counts = ["--max-tokens", "24", "--positions", "30", "--seeds", "8", "--window", "6"]
    assert main(["acceptance", *arguments, *counts]) == 0
    report = json.loads(file.read_text())
    figures = report["figures"]
    assert set(figures["engine"]) == {"classic", "coupled"}
    assert all(item["alpha"] is not None for item in figures["engine"].values())
    measured = {(item["drafter"], item["rule"]): item for item in figures["one_step"]}
    assert measured["window", "classic"]["positions"] == 30
    assert 0 < measured["window", "coupled"]["expected"] < 1
    assert report["settings"]["sampling"]["temperature"] == 0.8
    statuses = {item["name"]: item["status"] for item in report["promises"]}
    # Three prompts do not tell how answers vary.
    assert statuses["n-gram: classic and coupled apart, in standard errors"] == "not measured"
    assert statuses["one step, window, classic: off its expectation, in standard errors"] == "held"
    assert main(["acceptance", *arguments, *counts, "--quick", "--max-tokens", "2"]) == 0
    assert main(["acceptance", *arguments, "--temperature", "0"]) == 2
    assert main(["acceptance", *arguments, "--seeds", "0"]) == 2
