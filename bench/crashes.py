"""The gateway killed (SIGKILL) while it loads, reads a prompt, or streams: does it come back?

After every kill what it keeps on disk is looked at; then a gateway is started on that and asked:
its answer must be the one of before. Other moments are added to `bench.crash_victim.MOMENTS`.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from bench.crash_victim import MOMENTS, Place, answered, half_written, started, torn
from bench.report import Findings, Table, none_of
from bench.setup import Setup, progress
from models.errors import UserError

QUESTION = "Why is the sky blue?"
TOKENS = 24


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--kills",
        type=int,
        default=50,
        metavar="N",
        help="kills in all, in turn at each moment; default: 50, with --quick at most 6",
    )
    parser.add_argument(
        "--moments",
        default=",".join(MOMENTS),
        metavar="NAMES",
        help=f"which moments; default: {','.join(MOMENTS)}",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of when exactly")


@dataclass(slots=True)
class Outcome:
    """Problems by what they are; `back` are the seconds from a start to its first answer."""

    kills: Counter[str] = field(default_factory=Counter)
    back: list[float] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    differing: int = 0
    half_written: list[str] = field(default_factory=list)
    torn: list[str] = field(default_factory=list)


def run(parsed: argparse.Namespace, setup: Setup) -> Findings:
    kills = min(6, parsed.kills) if setup.quick else parsed.kills
    moments = parsed.moments.split(",")
    unknown = [name for name in moments if name not in MOMENTS]
    if kills < 1 or unknown:
        known = ", ".join(MOMENTS)
        raise UserError(f"--kills must be at least 1, and --moments some of {known}.", code="usage")
    texts = [question.turns[0] for question in setup.questions][:8]
    with tempfile.TemporaryDirectory(prefix="outpace-crashes-") as root:
        flags = () if setup.threads is None else ("--threads", str(setup.threads))
        place = Place(Path(root), setup.package.path, flags)
        place.prepare()
        outcome = asyncio.run(measure(place, moments, kills, texts, random.Random(parsed.seed)))
    described = {"kills": kills, "moments": moments, "seed": parsed.seed}
    return findings(outcome, described)


async def measure(
    place: Place, moments: Sequence[str], kills: int, texts: Sequence[str], chance: random.Random
) -> Outcome:
    outcome = Outcome()
    expected = await _life(place, outcome)
    if expected is None:
        raise UserError(f"the gateway does not serve at all: {outcome.lost}", code="gateway_failed")
    for number in range(kills):
        name = moments[number % len(moments)]
        victim = await MOMENTS[name](place, chance, texts)
        await victim.kill()
        outcome.kills[name] += 1
        outcome.half_written += half_written(place)
        answer = await _life(place, outcome)
        outcome.differing += answer is not None and answer != expected
        progress(f"crashes: {number + 1} of {kills} ({name})")
    return outcome


async def _life(place: Place, outcome: Outcome) -> str | None:
    """A gateway from its start to a proper end; its answer, None where there was none."""
    began = time.monotonic()
    victim = None
    try:
        victim = await started(place)
        answer = await answered(victim.url, QUESTION, TOKENS)
        outcome.back.append(time.monotonic() - began)
        victim.process.terminate()
        status = await victim.process.wait()
        if status != 0:
            outcome.lost.append(f"it ended with status {status}")
    except UserError as error:
        outcome.lost.append(error.message)
        return None
    finally:
        if victim is not None:
            await victim.kill()
    outcome.torn += torn(place)
    return answer


def findings(outcome: Outcome, described: dict[str, object]) -> Findings:
    problems = {
        "starts that did not serve": len(outcome.lost),
        "answers that differ from before": outcome.differing,
        "files half written": len(outcome.half_written),
        "n-gram files torn after the next write": len(outcome.torn),
    }
    rows = [(f"killed in mid-{name}", str(count)) for name, count in outcome.kills.items()]
    rows += [(name, str(count)) for name, count in problems.items()]
    if outcome.back:
        rows.append(("seconds from a start to its answer, median", f"{median(outcome.back):.1f}"))
        rows.append(("the same, longest", f"{max(outcome.back):.1f}"))
    figures = {
        "kills": dict(outcome.kills),
        "back_seconds": outcome.back,
        "lost": outcome.lost,
        "differing": outcome.differing,
        "half_written": outcome.half_written,
        "torn": outcome.torn,
    }
    promises = [none_of(name, count) for name, count in problems.items()]
    return Findings(described, figures, promises, [Table("Crashes", ("", ""), rows)])
