"""The gateway killed (SIGKILL) while it loads, reads a prompt, streams, or swaps packages.

After every kill what it keeps on disk is looked at; then a gateway is started on that and asked:
its answer must be the one of before. Other moments are added to `bench.crash_moments.MOMENTS`.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median

from bench.crash_kept import half_written, packages_of, torn
from bench.crash_moments import MOMENTS
from bench.crash_victim import Place, answered, started
from bench.day_packages import renamed
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
        help="kills in all, in turn at each moment; default: 50, with --quick at most 8",
    )
    parser.add_argument(
        "--moments",
        default=",".join(MOMENTS),
        metavar="NAMES",
        help=f"which moments; default: {','.join(MOMENTS)}",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of when exactly")


@dataclass(slots=True)
class Life:
    """A gateway from its start to a proper end. `moment`: of the kill before it, None where there
    was none; `back` are the seconds from its start to its first answer, None: it did not serve.
    `half_written` was found after the kill, `torn` after this life."""

    moment: str | None
    back: float | None = None
    answer: str | None = None
    same: bool = True
    lost: list[str] = field(default_factory=list)
    half_written: list[str] = field(default_factory=list)
    torn: list[str] = field(default_factory=list)

    @property
    def served(self) -> bool:
        return self.back is not None and not self.lost


def run(parsed: argparse.Namespace, setup: Setup) -> Findings:
    kills = min(8, parsed.kills) if setup.quick else parsed.kills
    moments = parsed.moments.split(",")
    unknown = [name for name in moments if name not in MOMENTS]
    if kills < 1 or unknown:
        known = ", ".join(MOMENTS)
        raise UserError(f"--kills must be at least 1, and --moments some of {known}.", code="usage")
    texts = [question.turns[0] for question in setup.questions][:8]
    with tempfile.TemporaryDirectory(prefix="outpace-crashes-") as root:
        place = place_of(setup, Path(root))
        lives = asyncio.run(measure(place, moments, kills, texts, random.Random(parsed.seed)))
    described = {"kills": kills, "moments": moments, "seed": parsed.seed}
    return findings(lives, described)


def place_of(setup: Setup, root: Path) -> Place:
    """With the package, and the same one under another name to switch to."""
    second = renamed(setup.package, root / "second")
    place = Place(
        root,
        setup.package.path,
        second.path,
        (setup.package.manifest.name, second.manifest.name),
        () if setup.threads is None else ("--threads", str(setup.threads)),
    )
    place.prepare()
    return place


async def measure(
    place: Place, moments: Sequence[str], kills: int, texts: Sequence[str], chance: random.Random
) -> list[Life]:
    """The life before all kills first, then that after each of them."""
    packages = packages_of(place)
    first = await _live(place, Life(None))
    if first.answer is None:
        raise UserError(f"the gateway does not serve at all: {first.lost}", code="gateway_failed")
    lives = [first]
    for number in range(kills):
        name = moments[number % len(moments)]
        victim = await MOMENTS[name](place, chance, texts)
        await victim.kill()
        life = Life(name, half_written=half_written(place, packages))
        lives.append(await _live(place, life, expected=first.answer))
        progress(f"crashes: {number + 1} of {kills} ({name})")
    return lives


async def _live(place: Place, life: Life, expected: str | None = None) -> Life:
    began = time.monotonic()
    victim = None
    try:
        victim = await started(place)
        life.answer = await answered(victim, QUESTION, TOKENS)
        life.back = time.monotonic() - began
        answers = [life.answer]
        if life.moment == "swap":
            # That which was switched to is the same package under another name.
            answers.append(await answered(victim, QUESTION, TOKENS, place.names[1]))
        life.same = expected is None or all(each == expected for each in answers)
        status = await victim.end()
        if status != 0:
            life.lost.append(f"it ended with status {status}")
    except UserError as error:
        life.lost.append(error.message)
    finally:
        if victim is not None:
            await victim.kill()
    life.torn = torn(place)
    return life


def findings(lives: Sequence[Life], described: dict[str, object]) -> Findings:
    problems = {
        "gateways that did not come back and serve": sum(not life.served for life in lives),
        "answers that differ from before": sum(not life.same for life in lives),
        "files half written": sum(len(life.half_written) for life in lives),
        "n-gram files torn after the next write": sum(len(life.torn) for life in lives),
    }
    moments = dict.fromkeys(life.moment for life in lives if life.moment is not None)
    by_moment = {name: [life for life in lives if life.moment == name] for name in moments}
    figures = {
        "kills": {name: len(found) for name, found in by_moment.items()},
        "lives": [asdict(life) for life in lives],
    }
    promises = [none_of(name, count) for name, count in problems.items()]
    return Findings(described, figures, promises, [_by_moment(by_moment), _seconds(lives)])


def _by_moment(by_moment: dict[str, list[Life]]) -> Table:
    header = ("killed in mid-", "kills", "served", "same answer", "half written", "torn")
    rows = [
        (
            name,
            str(len(lives)),
            str(sum(life.served for life in lives)),
            str(sum(life.served and life.same for life in lives)),
            str(sum(len(life.half_written) for life in lives)),
            str(sum(len(life.torn) for life in lives)),
        )
        for name, lives in by_moment.items()
    ]
    return Table("Crashes", header, rows)


def _seconds(lives: Sequence[Life]) -> Table:
    back = [life.back for life in lives if life.back is not None]
    rows = [
        ("median", f"{median(back):.1f}" if back else "-"),
        ("longest", f"{max(back):.1f}" if back else "-"),
    ]
    return Table("From a start to its first answer, seconds", ("", ""), rows)
