"""Whether sampled answers are distributed as the target's, for every rule, shape and parameter.

A model small enough to enumerate gives the exact probability of every answer of three tokens; many
answers are drawn by rounds of drafting and verifying, each with its own seed; Pearson's chi-square
test says how surprising the counts are. The package plays no part.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

from bench.draws import LENGTH, Configuration, judge
from bench.report import Findings, Promise, Table, number
from bench.setup import Setup, progress
from bench.tiny_model import SHOWN, VOCABULARY, drafter_of, random_model

TEMPERATURES = (0.5, 1.0, 1.5)
CROSSED = ("top-k", "top-p", "min-p", "penalties", "bias")

_LEAST_P = 1e-4
_SAMPLES, _QUICK_SAMPLES = 20_000, 2_000
_MODEL_SEED, _DRAFTER_SEED = 3, 4


@dataclass(frozen=True, slots=True)
class Judged:
    """One configuration. Counts are of all its samples together."""

    configuration: Configuration
    samples: int
    p: float
    rounds: int
    accepted: int
    opened: int


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--samples",
        type=int,
        metavar="N",
        help=f"answers per configuration; default: {_SAMPLES}, with --quick {_QUICK_SAMPLES}",
    )


def run(parsed: argparse.Namespace, setup: Setup) -> Findings:
    samples = parsed.samples or (_QUICK_SAMPLES if setup.quick else _SAMPLES)
    configurations = cross_product()
    progress(f"{len(configurations)} configurations, {samples} answers each")
    judged = list[Judged]()
    # Not forked: the interpreter may have threads by now.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(setup.threads or os.cpu_count(), mp_context=context) as pool:
        for result in pool.map(partial(_judge, samples), configurations, chunksize=4):
            judged.append(result)
            if len(judged) % 32 == 0:
                progress(f"{len(judged)} of {len(configurations)}")
    return findings(judged, samples)


def cross_product() -> list[Configuration]:
    """Rule x shape x kind of draft x temperature x every subset of the steps."""
    subsets = itertools.chain.from_iterable(
        itertools.combinations(CROSSED, count) for count in range(len(CROSSED) + 1)
    )
    return [
        Configuration(rule, tree, sampled, temperature, steps)
        for steps, temperature, rule, tree, sampled in itertools.product(
            subsets, TEMPERATURES, ("coupled", "classic"), (False, True), (True, False)
        )
    ]


def findings(judged: Sequence[Judged], samples: int) -> Findings:
    least = min(item.p for item in judged)
    chance = 1 - (1 - _LEAST_P) ** len(judged)
    promise = Promise(
        "least p of all configurations",
        least,
        ">=",
        _LEAST_P,
        note=f"{len(judged)} configurations; by chance one is below in {chance:.1%} of runs",
    )
    settings = {"samples": samples, "tokens": LENGTH, "vocabulary": VOCABULARY, "shown": SHOWN}
    figures: dict[str, Any] = {
        "configurations": [
            {
                "name": item.configuration.name,
                "p": item.p,
                "rounds": item.rounds,
                "accepted": item.accepted,
                "whole_rows": item.opened,
            }
            for item in judged
        ]
    }
    return Findings(settings, figures, [promise], [_p_values(judged), _summary(judged)])


def _p_values(judged: Sequence[Judged]) -> Table:
    methods = list(dict.fromkeys(item.configuration.method for item in judged))
    found = {
        (item.configuration.processing, item.configuration.method): f"{item.p:.2g}"
        for item in judged
    }
    rows = [
        (processing, *(found.get((processing, method), "-") for method in methods))
        for processing in dict.fromkeys(item.configuration.processing for item in judged)
    ]
    return Table("p of every configuration", ("", *methods), rows)


def _summary(judged: Sequence[Judged]) -> Table:
    rows = []
    for method in dict.fromkeys(item.configuration.method for item in judged):
        items = [item for item in judged if item.configuration.method == method]
        rounds, samples = sum(item.rounds for item in items), sum(item.samples for item in items)
        rows.append(
            (
                method,
                str(len(items)),
                f"{min(item.p for item in items):.2g}",
                number(sum(item.accepted for item in items) / rounds),
                number(rounds / samples),
                number(sum(item.opened for item in items) / samples),
            )
        )
    header = ("", "configurations", "least p", "accepted a round", "rounds", "whole rows")
    return Table("By method; rounds and whole rows opened are per answer", header, rows)


def _judge(samples: int, configuration: Configuration) -> Judged:
    target = random_model(_MODEL_SEED)
    drafter = drafter_of(target, _DRAFTER_SEED)
    p, drawn = judge(configuration, target, drafter, samples)
    return Judged(configuration, samples, p, drawn.rounds, drawn.accepted, drawn.opened)
