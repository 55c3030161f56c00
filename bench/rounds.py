"""What a round takes beside its runs: sessions that do nothing, in the whole gateway.

Every run of a graph keeps its processor busy for a while, and returns made-up logits. What is left
of a round, from the end of one run of the target to the begin of the next without the drafters'
runs between them, is the gateway's own: binding, verification, the decision, handing over between
threads, and the events that go to a WebSocket, whose client is a process of its own. Where a run
takes no time at all, nothing can be done beside it; where it takes some, what is said of one round
may be sent during the next.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import multiprocessing
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import Any, NamedTuple

import numpy as np
import uvloop
from aiohttp import web
from numpy.typing import NDArray

from bench.client import connected
from bench.gateway_process import free_port
from bench.report import Findings, Promise, Table
from bench.setup import Setup, progress
from gateway.engine.engine import Engine
from gateway.http.app import make_app, make_runner
from gateway.http.gateway import Gateway
from gateway.settings import Settings
from models.binding import Binding
from models.errors import UserError
from models.sampling.parameters import Sampling

BOUND_MS = 0.3
"""Of a round of one stream, greedy, whose runs do nothing. Behind a run that takes a while the
processor's caches, and whatever else runs on the machine, decide with."""

GREEDY = Sampling()
"""The most likely token."""

PENALISED, DRAWN = "ngram, penalty 1.05", "ngram, temperature 1"
UNBOUND = frozenset({PENALISED, DRAWN})
"""Ways of which nothing is promised."""

_FIRST_ID = 300
_CIRCLE = 48
_SURPRISES = 5
"""One token in so many is not the one that n-grams foresee."""

_CERTAIN = 40.0
"""A logit beside which those of 10 and less do not count, nor a penalty."""

_LONGEST_MS = 1000.0
_TRIED = 10_000
_SETTLE_ROUNDS = 20
_WARM_TOKENS = 64
_PROMPT = "Tell me a long story about a ship."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--tokens", type=int, default=512, metavar="N", help="of each answer; default: 512"
    )
    parser.add_argument(
        "--session-ms",
        default="0,5",
        metavar="MS,...",
        help="milliseconds that a run takes; default: 0,5",
    )
    parser.add_argument(
        "--repeats",
        type=int,
        default=5,
        metavar="N",
        help="answers in each way, in turn; default: 5, with --quick at most 2",
    )


def run(parsed: argparse.Namespace, setup: Setup) -> Findings:
    repeats = min(2, parsed.repeats) if setup.quick else parsed.repeats
    if parsed.tokens < 4 * _SETTLE_ROUNDS or repeats < 1:
        raise UserError(
            f"--tokens must be at least {4 * _SETTLE_ROUNDS} and --repeats at least 1.",
            code="usage",
        )
    ways = ways_of(setup)
    device = setup.package.manifest.target.device
    if device != "cpu":
        raise UserError(
            f"this package is for {device}, whose runs are not played here; bench gpu measures"
            " them.",
            code="usage",
        )
    times = _times(parsed.session_ms)
    measured = uvloop.run(_measure(setup, ways, times, parsed.tokens, repeats))
    described = {"tokens": parsed.tokens, "repeats": repeats, "session_ms": times}
    return findings(measured, described)


def _times(text: str) -> list[float]:
    try:
        times = [float(part) for part in text.split(",")]
    except ValueError:
        times = []
    if not times or not all(0 <= ms <= _LONGEST_MS for ms in times):
        raise UserError(
            f"--session-ms {text!r}: milliseconds from 0 to {_LONGEST_MS:g} with commas between"
            " them, as in 0,5.",
            code="usage",
        )
    return times


class Way(NamedTuple):
    """How an answer is drafted, and how its tokens are taken."""

    speculation: Mapping[str, Any]
    sampling: Sampling = GREEDY


def ways_of(setup: Setup) -> dict[str, Way]:
    """By name: no drafts, n-grams, and a learned drafter where the package has one, all greedy;
    n-grams with a penalty, which looks at what was said, and with draws."""
    ngram = {"drafter": "ngram", "policy": "cost"}
    ways = {"off": Way({"policy": "off"}), "ngram": Way(ngram)}
    learned = sorted({spec.kind for spec in setup.package.manifest.drafters})
    for name in learned[:1]:
        ways[f"{name}, 3 tokens"] = Way({"drafter": name, "policy": "fixed", "length": 3})
    ways[PENALISED] = Way(ngram, Sampling(repetition_penalty=1.05))
    ways[DRAWN] = Way(ngram, Sampling(temperature=1.0, seed=1))
    return ways


@dataclass(slots=True)
class Rounds:
    """Milliseconds of each round beside its runs, those from one run's begin to the next one's, and
    the tokens its run judged, two at least."""

    taken_ms: list[float] = field(default_factory=list)
    whole_ms: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)

    def leave_out(self, first: int) -> None:
        for values in (self.taken_ms, self.whole_ms, self.tokens):
            del values[:first]


class NullRuns:
    """Stands for ONNX Runtime while `replaced` is entered: a run is busy for about `run_ms`, and
    holds the interpreter no more than a real one. `rounds` has what lay between the target's."""

    def __init__(self) -> None:
        self._per_ms = _hashes_per_ms()
        self.run_ms = 0.0
        self.rounds = Rounds()
        self._began = 0.0
        self._ended: float | None = None
        self._drafted = 0.0

    def begin(self, run_ms: float) -> Rounds:
        """An answer follows, whose rounds go into what this returns."""
        self.run_ms, self.rounds, self._ended = run_ms, Rounds(), None
        return self.rounds

    def note(self, started: float, ended: float, tokens: int | None) -> None:
        """A run of the target that judges so many tokens, or one of a drafter (None)."""
        if tokens is None:
            self._drafted += ended - started
            return
        if self._ended is not None:
            self.rounds.taken_ms.append((started - self._ended - self._drafted) * 1e3)
            self.rounds.whole_ms.append((started - self._began) * 1e3)
            self.rounds.tokens.append(tokens)
        self._began, self._ended, self._drafted = started, ended, 0.0

    @contextmanager
    def replaced(self) -> Iterator[None]:
        real = Binding.run

        def run(binding: Binding, why: str = "") -> None:
            started = time.perf_counter()
            _hash(max(1, round(self.run_ms * self._per_ms)))
            arrays = binding.arrays
            fill(arrays)
            tokens = arrays["logits_index"].size if "logits_index" in arrays else None
            self.note(started, time.perf_counter(), tokens)

        Binding.run = run  # type: ignore[method-assign,assignment]
        try:
            yield
        finally:
            Binding.run = real  # type: ignore[method-assign]


def _hash(times: int) -> None:
    """Work without the interpreter, which computes in the processor's caches."""
    hashlib.pbkdf2_hmac("sha256", b"outpace", b"rounds", times)


def _hashes_per_ms() -> float:
    """The most of some tries: whatever disturbs them makes them fewer."""

    def tried() -> float:
        started = time.perf_counter()
        _hash(_TRIED)
        return _TRIED / ((time.perf_counter() - started) * 1e3)

    return max(tried() for _ in range(5))


def fill(arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write what a run of a target or of a drafter would: certain of one token behind each."""
    listed = arrays.get("top_ids")
    if listed is None:
        return
    ids = arrays["input_ids"][0]
    if "draft_ids" in arrays:
        best = _behind_drafts(int(ids[-1]), len(listed))
        arrays["draft_ids"][:] = best
        arrays["weights"][:] = 0.0
        arrays["weights"][:, 0] = 1.0
    else:
        positions = arrays["position_ids"][0]
        places = arrays["logits_index"]
        best = [behind(int(ids[place]), int(positions[place])) for place in places]
    listed[:] = np.arange(listed.shape[1])
    listed[:, 0] = best
    arrays["top_values"][:] = np.linspace(10.0, -10.0, listed.shape[1], dtype=np.float32)
    arrays["top_values"][:, 0] = _CERTAIN
    arrays["logsumexp"][:] = _CERTAIN


def behind(token: int, position: int) -> int:
    """The token behind `token` at `position`: mostly the next of a circle."""
    if position * 2654435761 % 1024 < 1024 // _SURPRISES:
        return _FIRST_ID + _CIRCLE + position % 211
    return _FIRST_ID + (token - _FIRST_ID + 1) % _CIRCLE


def _behind_drafts(token: int, steps: int) -> list[int]:
    drafts = []
    for _ in range(steps):
        token = _FIRST_ID + (token - _FIRST_ID + 1) % _CIRCLE
        drafts.append(token)
    return drafts


async def _measure(
    setup: Setup,
    ways: Mapping[str, Way],
    times: Sequence[float],
    tokens: int,
    repeats: int,
) -> dict[tuple[str, float], list[Rounds]]:
    runs = NullRuns()
    measured: dict[tuple[str, float], list[Rounds]] = {
        (name, taking): [] for taking in times for name in ways
    }
    async with _gateway(setup) as port:
        for way in ways.values():
            await _ask(port, way, _WARM_TOKENS)
        with runs.replaced():
            for repeat in range(1, repeats + 1):
                for (name, taking), answers in measured.items():
                    rounds = runs.begin(taking)
                    await _ask(port, ways[name], tokens)
                    rounds.leave_out(_SETTLE_ROUNDS)
                    answers.append(rounds)
                progress(f"rounds: {repeat} of {repeats}")
    return measured


@asynccontextmanager
async def _gateway(setup: Setup) -> AsyncIterator[int]:
    """A gateway in this process, on a port of the loopback interface."""
    port = free_port()
    settings = Settings(package=setup.package.path, port=port, threads=setup.threads, slots=1)
    gateway = Gateway(settings)
    observer = gateway.metrics.of(setup.package.manifest.name)
    runner = make_runner(make_app(gateway), gateway.limits)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        gateway.engine = await Engine.start(
            setup.package, settings.engine_options, observer=observer
        )
        yield port
    finally:
        await runner.shutdown()
        await runner.cleanup()
        if gateway.engine is not None:
            await gateway.engine.close()


async def _ask(port: int, way: Way, tokens: int) -> None:
    """Have a process of its own ask, which reads the events as they come.

    Raises `GatewayError` where it failed.
    """
    process = multiprocessing.get_context("spawn").Process(
        target=_client, args=(port, way, tokens), daemon=True
    )
    process.start()
    await asyncio.to_thread(process.join)
    if process.exitcode:
        raise UserError("the client of the round's answer failed.", code="gateway_failed")


def _client(port: int, way: Way, tokens: int) -> None:
    async def ask() -> None:
        async with connected(f"http://127.0.0.1:{port}") as client:
            await client.ask(
                _PROMPT,
                max_tokens=tokens,
                sampling=way.sampling,
                speculation=way.speculation,
                ignore_eos=True,
            )

    asyncio.run(ask())


def findings(
    measured: Mapping[tuple[str, float], list[Rounds]], settings: Mapping[str, Any]
) -> Findings:
    """`measured` are the answers of each way, and of each time that a run takes in it."""
    figures, rows, promises = [], [], []
    for (name, taking), answers in measured.items():
        means = [fmean(answer.taken_ms) for answer in answers if answer.taken_ms]
        taken = [ms for answer in answers for ms in answer.taken_ms]
        tokens = fmean(count for answer in answers for count in answer.tokens)
        whole = fmean(ms for answer in answers for ms in answer.whole_ms)
        middle, mean, late = median(taken), median(means), float(np.quantile(taken, 0.95))
        figures.append(
            {
                "way": name,
                "session_ms": taking,
                "rounds": len(taken),
                "mean_ms": mean,
                "median_ms": middle,
                "p95_ms": late,
                "whole_ms": whole,
                "tokens": tokens,
            }
        )
        shown = (mean, min(means), max(means), middle, late, whole)
        rows.append((name, f"{taking:g}", str(len(taken)), f"{tokens:.2f}", *map(_ms, shown)))
        if taking == 0 and name not in UNBOUND:
            told = f"a round beside runs that do nothing, {name}"
            promises.append(Promise(told, mean, "<=", BOUND_MS, "ms"))
    header = (
        "",
        "run ms",
        "rounds",
        "tokens a run",
        "mean",
        "least",
        "most",
        "median",
        "95 %",
        "with its run",
    )
    title = "Milliseconds of a round beside its runs: means of answers, and single rounds"
    return Findings(settings, {"ways": figures}, promises, (Table(title, header, rows),))


def _ms(value: float) -> str:
    return f"{value:.3f}"
