"""A day in minutes: what operators do to a gateway while clients ask, and what the clients see.

Clients ask one answer after another, over sockets, streamed and whole, of two packages. Meanwhile
a package is loaded, unloaded for lack of use and wanted again, switched to and back, the keys are
changed, and the gateway is drained and started again. Every request has to be answered, or refused
with a reason that something which was done at that time explains. Afterwards gateways are killed
in the middle of switches, and have to come back.

The pauses between events are what loading leaves of the day, so that it is about as long with a
small package as with a large one.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

from bench.day_clients import Kept, Outcome, Told, Traffic
from bench.day_events import Event, kills, live_a_day
from bench.day_packages import renamed
from bench.report import Findings, Promise, Table, milliseconds, none_of
from bench.setup import Setup
from models.errors import UserError

SECONDS = 300.0
LEAST_SECONDS = 10.0
CLIENTS = 4
KILLS = 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--seconds",
        type=float,
        default=SECONDS,
        metavar="S",
        help=f"how long the day is, about: loading takes of its pauses, and killing comes after it;"
        f" default: {SECONDS:g}, with --quick a fifth of that",
    )
    parser.add_argument(
        "--second",
        type=Path,
        metavar="DIR",
        help="the other package; default: the same one under another name",
    )
    parser.add_argument(
        "--clients", type=int, default=CLIENTS, metavar="N", help=f"default: {CLIENTS}"
    )
    parser.add_argument(
        "--kills",
        type=int,
        default=KILLS,
        metavar="N",
        help=f"gateways killed in mid-switch after the day, each a start and a load (crashes kills"
        f" more, and looks at what is kept); default: {KILLS}, with --quick at most 1",
    )


def run(parsed: argparse.Namespace, setup: Setup) -> Findings:
    seconds = parsed.seconds / 5 if setup.quick else parsed.seconds
    count = min(1, parsed.kills) if setup.quick else parsed.kills
    if seconds < LEAST_SECONDS or parsed.clients < 1 or count < 0:
        raise UserError(
            f"--seconds must be at least {LEAST_SECONDS:g} (five times that with --quick),"
            " --clients at least 1, --kills at least 0.",
            code="usage",
        )
    with tempfile.TemporaryDirectory(prefix="outpace-day-") as directory:
        second = parsed.second
        if second is None:
            second = renamed(setup.package, Path(directory) / "second").path
        traffic, events = asyncio.run(
            live_a_day(setup, second, Path(directory), seconds, parsed.clients)
        )
        killed = asyncio.run(kills(setup, second, count)) if count else []
    settings = {"seconds": seconds, "clients": parsed.clients, "kills": count}
    return findings(traffic, events, killed, settings)


def findings(
    traffic: Traffic, events: Sequence[Event], killed: Sequence[Kept], settings: dict[str, Any]
) -> Findings:
    told = traffic.told
    counts = Counter(each.outcome for each in told)
    broken = [each for each in told if each.outcome == "broken"]
    away, refused = (
        [each for each in told if each.outcome == outcome and not traffic.is_explained(each)]
        for outcome in ("away", "refused")
    )
    failed = [event for event in events if event.problem is not None]
    back = sum(each.came_back for each in killed)
    promises = [
        none_of("requests that broke off without a reason", len(broken), _first(broken)),
        none_of("requests refused for what nobody did", len(refused), _first(refused)),
        none_of("connections refused but while it restarted", len(away), _first(away)),
        none_of("things that could not be done", len(failed), _what(failed)),
        Promise("requests answered", float(counts["answered"]), ">=", 1.0),
        Promise(
            "killed gateways that came back whole",
            float(back) if killed else None,
            ">=",
            float(len(killed)),
            applies=bool(killed),
        ),
    ]
    tables = [_outcomes(told), _events(events), _reasons(told)]
    figures = {
        "outcomes": dict(counts),
        "refused": dict(Counter(each.reason for each in told if each.outcome == "refused")),
        "events": [asdict(event) for event in events],
        "broken": [asdict(each) for each in broken],
        "unexplained": [asdict(each) for each in (*refused, *away)],
        "kills": [asdict(each) for each in killed],
    }
    return Findings(settings, figures, promises, tables)


def _first(told: Sequence[Told]) -> str:
    return f"{told[0].kind} at {told[0].at:.1f} s: {told[0].reason}" if told else ""


def _what(events: Sequence[Event]) -> str:
    return f"{events[0].name}: {events[0].problem}" if events else ""


def _outcomes(told: Sequence[Told]) -> Table:
    kinds = sorted({each.kind for each in told})
    counts = Counter((each.kind, each.outcome) for each in told)
    outcomes = get_args(Outcome)
    rows = [(kind, *(str(counts[kind, outcome]) for outcome in outcomes)) for kind in kinds]
    return Table("Requests", ("", *outcomes), rows)


def _events(events: Sequence[Event]) -> Table:
    rows = [
        (event.name, f"{event.at:.1f}", milliseconds(event.seconds * 1e3), event.problem or "done")
        for event in events
    ]
    return Table("What was done meanwhile", ("", "at, s", "took, ms", ""), rows)


def _reasons(told: Sequence[Told]) -> Table:
    counts = Counter(each.reason for each in told if each.outcome == "refused")
    rows = [(reason, str(count)) for reason, count in counts.most_common()] or [("none", "0")]
    return Table("Refused, by reason", ("", "requests"), rows)
