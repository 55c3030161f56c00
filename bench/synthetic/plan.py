"""The grid of imposed acceptances and draft lengths, as the command line asks for it."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

from bench.ranges import at_least, decimals, naturals, usage
from bench.setup import Setup
from bench.synthetic.shapes import DEMO, RANDOM
from gateway.engine.costs.break_even import expected_tau
from gateway.engine.names import NGRAM, is_name, resolve
from gateway.settings import MAX_DRAFT_LENGTH

ALPHAS, LENGTHS = "0.3,0.5,0.7,0.9", "1..8"
FEWEST_ROUNDS = 8
"""Rounds of a stream, the others running too, below which nothing is said of them."""

_PROMPT = 128
"""Tokens that a prompt has at most."""


@dataclass(frozen=True, slots=True)
class Point:
    """Drafts of `length` tokens, each accepted with probability `alpha`; 0 tokens are plain
    decoding."""

    length: int = 0
    alpha: float = 0.0

    @property
    def wire(self) -> dict[str, Any]:
        """The request's `speculation` object, but for the drafter."""
        if self.length == 0:
            return {"policy": "off"}
        return {
            "policy": "fixed",
            "length": self.length,
            "rule": "synthetic",
            "acceptance": self.alpha,
        }

    @property
    def tau(self) -> float:
        """Tokens of a round, by the formula."""
        return expected_tau(self.alpha, self.length)


PLAIN = Point()


@dataclass(frozen=True, slots=True)
class Plan:
    """`rounds` are those of an answer, about: its tokens follow from the formula."""

    alphas: tuple[float, ...]
    lengths: tuple[int, ...]
    concurrency: tuple[int, ...]
    drafter: str
    rounds: int
    repeats: int
    seed: int

    def tokens(self, point: Point) -> int:
        return round(self.rounds * point.tau) + 2 * (point.length + 1)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flag = parser.add_argument
    flag(
        "--shape",
        metavar="NAME|PATH",
        help=f"the target: {', '.join((DEMO, *RANDOM))} (random weights of that size, made once),"
        " a package, or a model's config.json (random weights of its shape); default: demo",
    )
    flag("--alpha", default=ALPHAS, metavar="A,...", help=f"acceptances; default: {ALPHAS}")
    flag("--lengths", default=LENGTHS, metavar="N,...|N..M", help=f"default: {LENGTHS}")
    flag("--concurrency", default="1", metavar="N,...", help="streams at once; default: 1")
    flag("--drafter", default=NGRAM, metavar="NAME", help=f"whose time it takes; default: {NGRAM}")
    flag("--rounds", type=int, default=64, metavar="N", help="of an answer; default: 64")
    flag("--repeats", type=int, default=3, metavar="N", help="default: 3, with --quick 1")
    flag("--seed", type=int, default=0, metavar="S", help="default: 0")


def plan_of(parsed: argparse.Namespace, setup: Setup) -> Plan:
    """Raises `UserError` for what cannot be asked of this package."""
    package = setup.package
    most = max(package.row_counts)
    at_least("rounds", parsed.rounds, 2 * FEWEST_ROUNDS)
    at_least("repeats", parsed.repeats, 1)
    at_least("seed", parsed.seed, 0)
    plan = Plan(
        alphas=decimals("alpha", parsed.alpha, 0, 1),
        lengths=naturals("lengths", parsed.lengths, MAX_DRAFT_LENGTH),
        concurrency=naturals("concurrency", parsed.concurrency, most),
        drafter=_drafter(parsed.drafter, setup),
        rounds=parsed.rounds,
        repeats=1 if setup.quick else parsed.repeats,
        seed=parsed.seed,
    )
    longest = max(plan.tokens(Point(length, max(plan.alphas))) for length in plan.lengths)
    context = package.manifest.target.context_length
    if longest + _PROMPT > context:
        raise usage(
            "rounds",
            str(parsed.rounds),
            f"makes answers of {longest} tokens, too many for a context of {context}",
        )
    return plan


def _drafter(name: str, setup: Setup) -> str:
    """Raises `UserError` where the package has none of that name, or it drafts nothing."""
    kinds = [spec.kind for spec in setup.package.manifest.drafters]
    if not is_name(name) or not resolve(name, kinds):
        raise usage("drafter", name, f"takes {', '.join((NGRAM, *kinds))}")
    return name
