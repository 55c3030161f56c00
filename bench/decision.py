"""What a decision costs the host: whom to ask for a draft, and what of it to verify.

No model runs: policy, costs and outcomes are those of the gateway, the load is made up.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Iterator, Mapping
from statistics import median
from typing import NamedTuple

from bench.report import Findings, Promise, Table
from bench.setup import Setup
from gateway.engine.costs.coefficients import Coefficients
from gateway.engine.costs.draft_costs import DraftCosts
from gateway.engine.costs.run_costs import RunCosts
from gateway.engine.costs.shape import NOBODY, Load, RunShape
from gateway.engine.policies.allocation import allocate
from gateway.engine.policies.base import LONGEST_DRAFT, Candidate, Policy
from gateway.engine.policies.make import make_policy
from gateway.engine.policies.offers import Offer
from gateway.engine.requests import Speculation, named_policy
from models.draft import Draft
from models.drafters.survival import Published, Survival

BOUND_US = 50.0
"""Microseconds a request and round."""

POLICIES = ("cost", "confidence", "slo", "ema-tiers")
ROWS = (1, 2, 4, 8)
LEARNED = (0, 1, 3)
"""`cascade` has one; whoever names several has them compared every round."""

DRAFT_TOKENS = (5, LONGEST_DRAFT)
"""A draft longer than most, and as long as they get."""

_CACHED = 400
_PARTS = 5
"""Every kind is measured so many times, in turn with the others."""

_CURVE = ((2, 27.0), (4, 30.0), (8, 36.0), (16, 50.0), (32, 80.0), (128, 260.0))


class Setting(NamedTuple):
    """`learned` drafters to choose from beside what is free, drafts of `tokens`, `rows` that share
    the run."""

    policy: str
    learned: int
    tokens: int
    rows: int


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--repeats",
        type=int,
        default=2000,
        metavar="N",
        help="decisions of each kind; default: 2000, with --quick at most 200",
    )


def run(parsed: argparse.Namespace, setup: Setup) -> Findings:
    repeats = max(_PARTS, min(200, parsed.repeats) if setup.quick else parsed.repeats)
    parts = [
        {setting: _microseconds(setting, repeats // _PARTS) for setting in _settings()}
        for _ in range(_PARTS)
    ]
    measured = {setting: median(part[setting] for part in parts) for setting in parts[0]}
    rows = [
        (
            f"{setting.policy}, {setting.learned} learned",
            str(setting.tokens),
            *(f"{measured[setting._replace(rows=count)]:.1f}" for count in ROWS),
        )
        for setting in measured
        if setting.rows == ROWS[0]
    ]
    columns = ("policy", "draft", *(f"{count} rows" for count in ROWS))
    return Findings(
        {"repeats": repeats, "draft_tokens": DRAFT_TOKENS},
        {"microseconds": {" ".join(map(str, setting)): us for setting, us in measured.items()}},
        tuple(_promise(measured, tokens) for tokens in DRAFT_TOKENS),
        (Table(_TITLE, columns, rows),),
    )


def _promise(measured: Mapping[Setting, float], tokens: int) -> Promise:
    usual = [each for each in measured if each.learned <= 1 and each.tokens == tokens]
    worst = max(usual, key=lambda setting: measured[setting])
    note = f"the worst of at most one learned: {worst.policy}, {worst.learned}, {worst.rows} rows"
    title = f"a decision, drafts of {tokens}, median"
    return Promise(title, measured[worst], "<=", BOUND_US, " us", note)


_TITLE = "Microseconds of a request's decision: plan, offer, and its share of the division of a run"


def _settings() -> Iterator[Setting]:
    for policy in POLICIES:
        for learned in LEARNED:
            for tokens in DRAFT_TOKENS:
                for rows in ROWS:
                    yield Setting(policy, learned, tokens, rows)


def _microseconds(setting: Setting, repeats: int) -> float:
    """The median. Outcomes come in between and are not in it: what they change is decided anew."""
    costs = RunCosts(Coefficients(_CURVE, per_row=0.5, per_past=0.001, per_work=0.0002))
    chance = random.Random(0)
    policies = [_policy(setting.policy, costs) for _ in range(setting.rows)]
    learned = [[_candidate(n, chance) for n in range(setting.learned)] for _ in policies]
    others = setting.rows - 1
    load = Load(RunShape(others, 3 * others, _CACHED * others, 3 * _CACHED * others), _CACHED)
    cached = [_CACHED] * setting.rows
    taken = []
    for _ in range(repeats):
        drafts = [_draft(chance, setting.tokens) for _ in policies]
        spent = 0.0
        offers: list[Offer] = []
        for policy, candidates, draft in zip(policies, learned, drafts, strict=True):
            budget = policy.budget(1000)
            spent += _timed(policy.plan, draft, candidates, load, budget)
            started = time.perf_counter()
            offers.append(policy.offer(draft, load))
            spent += time.perf_counter() - started
        spent += _timed(allocate, offers, cached, NOBODY, costs)
        taken.append(spent / setting.rows)
        costs.observe(load.run(4), 30.0 * chance.uniform(0.95, 1.1))
        for policy, candidates, draft in zip(policies, learned, drafts, strict=True):
            said = (*draft.tokens[: chance.randrange(6)], -1)
            policy.observe(draft, said)
            for candidate in candidates[:1]:  # the one that drafted
                candidate.survival.observe(draft.first(4), said)
    return median(taken) * 1e6


def _timed(function: Callable[..., object], *arguments: object) -> float:
    started = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - started


def _policy(name: str, costs: RunCosts) -> Policy:
    return make_policy(Speculation(policy=named_policy(name), tpot_ms=20.0), costs)


def _candidate(number: int, chance: random.Random) -> Candidate:
    prior = Survival(Published((0.5, 0.35, 0.25, 0.2)), 20.0, 0.995)
    costs = DraftCosts({n: (1.0 + n) * chance.uniform(0.9, 1.1) for n in range(1, 9)})
    return Candidate(f"head{number}", 8, costs, Survival(prior, 4.0, 0.9, abrupt=True))


def _draft(chance: random.Random, tokens: int) -> Draft:
    confidence = tuple(chance.uniform(0.5, 1.0) for _ in range(tokens))
    return Draft(tuple(range(tokens)), confidence=confidence, source="ngram")
