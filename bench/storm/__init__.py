"""Hundreds of clients of which a few generate: what the others cost these, and what they leave.

Windows in which the few stream alone and such in the storm, in turn. The others stall without
reading, drop at random, send garbage, or do nothing at all.
"""

from __future__ import annotations

import argparse
import asyncio

from bench.report import Findings
from bench.setup import Setup
from bench.storm.figures import findings
from bench.storm.plan import Plan
from bench.storm.weather import measure
from models.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    for flag, value, what in (
        ("connections", 500, "in all; a fifth each stall, drop and send garbage"),
        ("generating", 8, "of them; as many slots has the gateway"),
        ("windows", 16, "of either kind; with --quick at most 2"),
        ("tokens", 128, "of each answer in a window"),
    ):
        parser.add_argument(
            f"--{flag}", type=int, default=value, metavar="N", help=f"{what}; default: {value}"
        )
    parser.add_argument(
        "--every",
        type=float,
        default=5.0,
        metavar="SECONDS",
        help="mean time between two acts of one client; default: 5",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="default: 0")


def run(parsed: argparse.Namespace, setup: Setup) -> Findings:
    plan = Plan(
        connections=parsed.connections,
        generating=parsed.generating,
        windows=min(2, parsed.windows) if setup.quick else parsed.windows,
        tokens=parsed.tokens,
        every=parsed.every,
        seed=parsed.seed,
    )
    if min(plan.generating, plan.windows, plan.tokens) < 1 or plan.every <= 0:
        raise UserError("every count and --every must be above 0.", code="usage")
    if plan.idle < 0:
        raise UserError(
            f"--connections {plan.connections} is too few: a fifth each of three kinds and"
            f" {plan.generating} that generate are more.",
            code="usage",
        )
    return findings(plan, asyncio.run(measure(setup, plan)))
