"""The command line: `python -m bench SUITE`. Measures, prints its figures last, judges promises.

Exit status: 0 when every promise holds, 1 when one does not or is missing, 2 for what a user can
put right. A promise of which too little was measured to judge it is said to be not measured, and
decides nothing.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from bench import (
    acceptance,
    adversary,
    cost,
    crashes,
    day,
    decision,
    distribution,
    drafters,
    exactness,
    gpu,
    kills,
    logprobs,
    overhead,
    peers,
    prediction,
    prefix,
    prompts,
    rounds,
    run,
    serve,
    share,
    speed,
    storm,
    structured,
    synthetic,
)
from bench.client import GatewayError
from bench.report import Findings, document, render, write_json
from bench.setup import Setup
from models.errors import UserError
from models.locations import default_package_path
from models.package import load_package
from models.usage import Parser, add_command

SUITES = (
    exactness,
    distribution,
    acceptance,
    drafters,
    logprobs,
    share,
    cost,
    decision,
    rounds,
    adversary,
    overhead,
    speed,
    prefix,
    structured,
    prediction,
    kills,
    crashes,
    day,
    storm,
    run,
    serve,
    synthetic,
    peers,
    gpu,
)


def main(arguments: Sequence[str] | None = None) -> int:
    parsed = _parser().parse_args(arguments)
    started = time.time()
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        setup = _setup(parsed)
        findings: Findings = parsed.run(parsed, setup)
        report = document(parsed.suite, setup, findings, started, time.time())
        if parsed.json is not None:
            write_json(parsed.json, report)
    except UserError as error:
        print(f"bench {parsed.suite}: {error.message}", file=sys.stderr)
        return 2
    except GatewayError as error:
        print(f"bench {parsed.suite}: the gateway failed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        signal.signal(signal.SIGTERM, before)
    print(render(report, findings))
    return 0 if findings.held else 1


def _setup(parsed: argparse.Namespace) -> Setup:
    questions, sources = [], []
    if parsed.prompts is not None:
        questions += prompts.load(parsed.prompts)
        sources.append(str(parsed.prompts))
    if parsed.prompts is None or parsed.builtin_repeating:
        questions += prompts.builtin()
        sources.append("built-in")
    if parsed.limit is not None:
        questions = prompts.spread(questions, parsed.limit, parsed.spread_over)
    return Setup(
        package=load_package(parsed.package_of(parsed) or default_package_path()),
        questions=questions,
        source=" and ".join(sources),
        threads=parsed.threads,
        quick=parsed.quick,
    )


def _parser() -> Parser:
    parser = Parser(
        prog="python -m bench",
        description="Measures what Outpace promises and says whether it holds.",
        allow_abbrev=False,
    )
    suites = parser.add_subparsers(dest="suite", required=True, metavar="SUITE")
    for suite in SUITES:
        name = suite.__name__.rpartition(".")[2]
        summary = (suite.__doc__ or "").partition("\n")[0]
        added = add_command(suites, name, summary)
        _add_common(added)
        suite.add_arguments(added)
        spread_over = getattr(suite, "SPREAD_OVER", prompts.by_category)
        package_of = getattr(suite, "package_of", _given_package)
        added.set_defaults(run=suite.run, spread_over=spread_over, package_of=package_of)
    return parser


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--package", type=Path, metavar="DIR", help="default: the demo package")
    parser.add_argument(
        "--prompts",
        type=Path,
        metavar="FILE",
        help="JSON lines with turns (Spec-Bench form); default: built-in texts that repeat",
    )
    parser.add_argument(
        "--builtin-repeating",
        action="store_true",
        help="use the built-in prompts beside those of --prompts",
    )
    parser.add_argument(
        "--limit",
        type=positive,
        metavar="N",
        help="use N prompts, spread evenly over the categories (drafters: tasks)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything to FILE")
    parser.add_argument("--threads", type=positive, metavar="N", help="default: every processor")
    parser.add_argument("--quick", action="store_true", help="fewer runs: a look, not a proof")


def _given_package(parsed: argparse.Namespace) -> Path | None:
    given: Path | None = parsed.package
    return given


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    """As Ctrl-C, which asyncio turns into an orderly end: the gateway must not outlive a suite."""
    signal.raise_signal(signal.SIGINT)


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


if __name__ == "__main__":
    sys.exit(main())
