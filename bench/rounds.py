"""What a round takes beside its runs: sessions that do nothing, in the whole gateway.

Every run of a graph returns at once, with made-up logits. What is left of a round is the gateway's
own: the event loop, the handing over to the device's thread and back, binding, verification, the
decision, and the events that go to a WebSocket, whose client is a process of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import Any

import numpy as np
import uvloop
from aiohttp import web
from numpy.typing import NDArray

from bench.client import connected
from bench.gateway_process import free_port
from bench.report import Findings, Promise, Table
from bench.setup import Setup, progress
from gateway.engine.engine import Engine
from gateway.engine.observer import Observer, RoundSeen
from gateway.http.app import make_app, make_runner
from gateway.http.gateway import Gateway
from gateway.settings import Settings
from models.binding import Binding
from models.errors import UserError

BOUND_MS = 0.3
"""Of a round of one stream."""

_FIRST_ID = 300
_CIRCLE = 48
_SURPRISES = 5
"""One token in so many is not the one that n-grams foresee."""

_SETTLE_ROUNDS = 20
_WARM_TOKENS = 64
_PROMPT = "Tell me a long story about a ship."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--tokens", type=int, default=512, metavar="N", help="of each answer; default: 512"
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
    measured = uvloop.run(_measure(setup, ways, parsed.tokens, repeats))
    return findings(measured, {"tokens": parsed.tokens, "repeats": repeats})


def ways_of(setup: Setup) -> dict[str, Mapping[str, Any]]:
    """Ways of drafting by name: none, n-grams, and a learned drafter where the package has one."""
    ways: dict[str, Mapping[str, Any]] = {
        "off": {"policy": "off"},
        "ngram": {"drafter": "ngram", "policy": "cost"},
    }
    learned = sorted({spec.kind for spec in setup.package.manifest.drafters})
    for name in learned[:1]:
        ways[f"{name}, 3 tokens"] = {"drafter": name, "policy": "fixed", "length": 3}
    return ways


@dataclass(slots=True)
class Rounds:
    """Milliseconds of each round beside its runs, and the tokens that were verified in it."""

    taken_ms: list[float] = field(default_factory=list)
    verified: list[int] = field(default_factory=list)


class NullRuns:
    """Stands for ONNX Runtime while `replaced` is entered. `seconds` is what it took itself."""

    def __init__(self) -> None:
        self.seconds = 0.0

    @contextmanager
    def replaced(self) -> Iterator[None]:
        real = Binding.run

        def run(binding: Binding, why: str = "") -> None:
            started = time.perf_counter()
            fill(binding.arrays)
            self.seconds += time.perf_counter() - started

        Binding.run = run  # type: ignore[method-assign,assignment]
        try:
            yield
        finally:
            Binding.run = real  # type: ignore[method-assign]


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
    arrays["logsumexp"][:] = 10.0


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


class _Watching:
    """Passes on what an engine tells, and takes the time of its rounds."""

    def __init__(self, observer: Observer, runs: NullRuns) -> None:
        self._observer = observer
        self._runs = runs
        self._last = (0.0, 0.0)
        self.rounds = Rounds()

    def begin(self) -> Rounds:
        self.rounds = Rounds()
        return self.rounds

    def started(self, waited: float, prompt_tokens: int, cached_tokens: int) -> None:
        self._observer.started(waited, prompt_tokens, cached_tokens)

    def first_token(self, seconds: float) -> None:
        self._observer.first_token(seconds)

    def more_tokens(self, count: int, seconds: float) -> None:
        self._observer.more_tokens(count, seconds)

    def round(self, seen: RoundSeen) -> None:
        self._observer.round(seen)
        now, run = time.perf_counter(), self._runs.seconds
        before, run_before = self._last
        self._last = (now, run)
        if before:
            self.rounds.taken_ms.append(((now - before) - (run - run_before)) * 1e3)
            self.rounds.verified.append(seen.verified)

    def ended(self, reason: str, seconds: float) -> None:
        self._observer.ended(reason, seconds)
        self._last = (0.0, 0.0)


async def _measure(
    setup: Setup, ways: Mapping[str, Mapping[str, Any]], tokens: int, repeats: int
) -> dict[str, list[Rounds]]:
    runs = NullRuns()
    measured: dict[str, list[Rounds]] = {name: [] for name in ways}
    async with _gateway(setup, runs) as (port, watching):
        for speculation in ways.values():
            await _ask(port, speculation, _WARM_TOKENS)
        with runs.replaced():
            for repeat in range(1, repeats + 1):
                for name, speculation in ways.items():
                    rounds = watching.begin()
                    await _ask(port, speculation, tokens)
                    del rounds.taken_ms[:_SETTLE_ROUNDS], rounds.verified[:_SETTLE_ROUNDS]
                    measured[name].append(rounds)
                progress(f"rounds: {repeat} of {repeats}")
    return measured


@asynccontextmanager
async def _gateway(setup: Setup, runs: NullRuns) -> AsyncIterator[tuple[int, _Watching]]:
    """A gateway in this process, on a port of the loopback interface."""
    port = free_port()
    settings = Settings(package=setup.package.path, port=port, threads=setup.threads, slots=1)
    gateway = Gateway(settings)
    name = setup.package.manifest.name
    watching = _Watching(gateway.metrics.of(name), runs)
    runner = make_runner(make_app(gateway), gateway.limits)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        gateway.engine = await Engine.start(
            setup.package, settings.engine_options, observer=watching
        )
        yield port, watching
    finally:
        await runner.shutdown()
        await runner.cleanup()
        if gateway.engine is not None:
            await gateway.engine.close()


async def _ask(port: int, speculation: Mapping[str, Any], tokens: int) -> None:
    """Have a process of its own ask, which reads the events as they come.

    Raises `GatewayError` where it failed.
    """
    process = multiprocessing.get_context("spawn").Process(
        target=_client, args=(port, dict(speculation), tokens), daemon=True
    )
    process.start()
    await asyncio.to_thread(process.join)
    if process.exitcode:
        raise UserError("the client of the round's answer failed.", code="gateway_failed")


def _client(port: int, speculation: dict[str, Any], tokens: int) -> None:
    async def ask() -> None:
        async with connected(f"http://127.0.0.1:{port}") as client:
            await client.ask(_PROMPT, max_tokens=tokens, speculation=speculation, ignore_eos=True)

    asyncio.run(ask())


def findings(measured: Mapping[str, list[Rounds]], settings: Mapping[str, Any]) -> Findings:
    """`measured` are the answers of each way."""
    figures, rows, promises = {}, [], []
    for name, answers in measured.items():
        medians = [median(answer.taken_ms) for answer in answers if answer.taken_ms]
        taken = [ms for answer in answers for ms in answer.taken_ms]
        verified = [count for answer in answers for count in answer.verified]
        middle = median(medians)
        figures[name] = {
            "rounds": len(taken),
            "median_ms": middle,
            "mean_ms": fmean(taken),
            "p95_ms": float(np.quantile(taken, 0.95)),
            "verified": fmean(verified),
        }
        rows.append(
            (
                name,
                str(len(taken)),
                f"{fmean(verified):.2f}",
                f"{middle:.3f}",
                f"{min(medians):.3f}",
                f"{max(medians):.3f}",
                f"{float(np.quantile(taken, 0.95)):.3f}",
            )
        )
        promises.append(Promise(f"a round beside its runs, {name}", middle, "<=", BOUND_MS, "ms"))
    header = ("", "rounds", "draft tokens", "median", "least", "most", "95 %")
    return Findings(
        settings,
        {"ways": figures},
        promises,
        (Table("Milliseconds of a round beside its runs: medians of answers", header, rows),),
    )
