"""Loads and policies of a run, as the command line asks for them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bench.drafting import OFF
from bench.naturals import natural
from bench.ranges import at_least, decimals, naturals, one_of, usage
from bench.setup import Setup
from gateway.engine.names import is_name
from gateway.engine.options import EngineOptions
from gateway.engine.requests import POLICY_NAMES, Speculation, named_policy
from gateway.settings import MAX_DRAFT_LENGTH
from models.sampling.parameters import Sampling

FIXED, SLO = "fixed", "slo"
CONCURRENCY = "1,2,4,8,16,32"
SLOTS = 8

_DEFAULTS = Speculation()
_MOST_STREAMS = 64
_MOST_RATE = 1000.0


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy of the gateway's; `length` None leaves the length to it."""

    name: str
    drafter: str
    length: int | None = None

    @property
    def label(self) -> str:
        return self.name if self.length is None else f"{self.name}:{self.length}"

    def wire(self, tpot_ms: float) -> dict[str, Any]:
        """The request's `speculation` object. `tpot_ms` is what `slo` aims at."""
        if self.name == OFF:
            return {"policy": OFF}
        length = {} if self.length is None else {"length": self.length}
        target = {"tpot_ms": tpot_ms} if self.name == SLO else {}
        return {"policy": self.name, "drafter": self.drafter, **length, **target}


@dataclass(frozen=True, slots=True)
class Load:
    """`streams` that ask again as soon as they are answered (closed loop), or requests that arrive
    at `rate` per second whatever becomes of them (open loop)."""

    streams: int | None = None
    rate: float | None = None

    @property
    def label(self) -> str:
        if self.streams is not None:
            return f"{self.streams} stream{'' if self.streams == 1 else 's'}"
        return f"{self.rate:g} requests/s"


@dataclass(frozen=True, slots=True)
class Targets:
    """What an answer must meet to count as good, in milliseconds."""

    ttft_ms: float
    tpot_ms: float


@dataclass(frozen=True, slots=True)
class Plan:
    """`policies` begin with `off`. `requests` are those of a closed window (None: as many as keep
    the streams busy), `seconds` the length of an open one, `phases` streams of a changing load,
    with `answers` of the first stream in each. Targets that are None follow from plain decoding.
    """

    policies: tuple[Policy, ...]
    loads: tuple[Load, ...]
    phases: tuple[int, ...]
    answers: int
    requests: int | None
    seconds: float
    repeats: int
    max_tokens: int
    slots: int
    queue: int
    ttft_ms: float | None
    tpot_ms: float | None
    sampling: Sampling
    seed: int

    def window(self, streams: int) -> int:
        """Requests of a closed window: twice as many as there are streams and slots, so that no
        prompt is still in a slot when it comes again."""
        return self.requests or 2 * max(streams, self.slots)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flag = parser.add_argument
    options = EngineOptions()
    flag(
        "--policies",
        default=f"{OFF},{_DEFAULTS.policy}",
        metavar="NAME[:LENGTH],...",
        help=f"of {', '.join(POLICY_NAMES)}; {OFF} is always measured; default: {_DEFAULTS.policy}",
    )
    flag("--drafter", default=_DEFAULTS.drafter, metavar="NAME", help="default: the package's best")
    flag("--concurrency", metavar="N,...", help=f"closed loop: streams; default: {CONCURRENCY}")
    flag("--rates", metavar="R,...", help="open loop: requests per second, Poisson arrivals")
    flag("--load", metavar="N,...", help="a load that changes: streams of each phase, as in 1,8,1")
    flag("--answers", type=int, default=4, metavar="N", help="of a phase's first stream; default 4")
    flag("--requests", type=int, metavar="N", help="of a closed window; default: 2 x streams, 16")
    flag("--seconds", type=float, default=30.0, metavar="S", help="of an open window; default: 30")
    flag("--repeats", type=int, default=3, metavar="N", help="windows; default: 3, --quick 1")
    flag("--max-tokens", type=int, default=96, metavar="N", help="of an answer; default: 96")
    flag("--slots", type=int, default=SLOTS, metavar="N", help=f"requests at once; default {SLOTS}")
    flag("--queue", type=int, default=options.queue, metavar="N", help="requests that may wait")
    flag("--ttft-ms", type=float, metavar="MS", help="target; default: 5 x that of off alone")
    flag("--tpot-ms", type=float, metavar="MS", help="target; default: 2 x that of off alone")
    flag("--temperature", type=float, default=0.0, metavar="T", help="0 is greedy; default: 0")
    flag("--seed", type=int, default=0, metavar="S", help="of arrivals and answers; default: 0")


def plan_of(parsed: argparse.Namespace, setup: Setup) -> Plan:
    """Raises `UserError` for what no gateway can be asked."""
    naturals("slots", str(parsed.slots), _MOST_STREAMS)
    for name, least in (("repeats", 1), ("answers", 1), ("max-tokens", 8)):
        at_least(name, getattr(parsed, name.replace("-", "_")), least)
    for name, value in (("queue", parsed.queue), ("seed", parsed.seed)):
        at_least(name, value, 0)
    for name in ("requests", "ttft-ms", "tpot-ms"):
        value = getattr(parsed, name.replace("-", "_"))
        if value is not None:
            at_least(name, value, 1)
    at_least("seconds", parsed.seconds, 1)
    return Plan(
        policies=_policies(parsed),
        loads=_loads(parsed),
        phases=() if parsed.load is None else _phases(parsed.load),
        answers=parsed.answers,
        requests=parsed.requests,
        seconds=parsed.seconds,
        repeats=1 if setup.quick else parsed.repeats,
        max_tokens=parsed.max_tokens,
        slots=parsed.slots,
        queue=parsed.queue,
        ttft_ms=parsed.ttft_ms,
        tpot_ms=parsed.tpot_ms,
        sampling=Sampling(temperature=parsed.temperature, seed=parsed.seed),
        seed=parsed.seed,
    )


def _policies(parsed: argparse.Namespace) -> tuple[Policy, ...]:
    if parsed.drafter == OFF or not is_name(parsed.drafter):
        raise usage("drafter", parsed.drafter, "is no drafter that a package could have")
    found = [Policy(OFF, parsed.drafter)]
    for part in (part.strip() for part in parsed.policies.split(",")):
        name, colon, text = part.partition(":")
        one_of("policies", [name], POLICY_NAMES)
        length = natural(text, MAX_DRAFT_LENGTH) if colon else None
        if (colon and (length is None or name == OFF)) or (name == FIXED and not colon):
            raise usage(
                "policies", part, f"takes a length of 1 to {MAX_DRAFT_LENGTH}, as in {FIXED}:4"
            )
        found.append(Policy(named_policy(name), parsed.drafter, length))
    return tuple(dict.fromkeys(found))


def _loads(parsed: argparse.Namespace) -> tuple[Load, ...]:
    """Streams, then rates; the usual streams where no load is asked for at all."""
    text = parsed.concurrency
    if text is None and parsed.rates is None and parsed.load is None:
        text = CONCURRENCY
    streams: Sequence[int] = () if text is None else naturals("concurrency", text, _MOST_STREAMS)
    rates: Sequence[float] = ()
    if parsed.rates is not None:
        rates = decimals("rates", parsed.rates, 1 / parsed.seconds, _MOST_RATE)
    return (*(Load(streams=count) for count in streams), *(Load(rate=rate) for rate in rates))


def _phases(text: str) -> tuple[int, ...]:
    """As they come: 1 twice is twice."""
    counts = [natural(part.strip(), _MOST_STREAMS) for part in text.split(",")]
    known = [count for count in counts if count is not None]
    if len(known) < len(counts) or len(known) < 2:
        raise usage("load", text, f"takes two phases or more of 1 to {_MOST_STREAMS} streams")
    return tuple(known)
