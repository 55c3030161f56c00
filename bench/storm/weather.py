"""Has a gateway bear windows of calm and of storm, in turn."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from statistics import fmean

from bench.client import Arrival, Client, GatewayError, WireAnswer, connected
from bench.gateway_process import GatewayProcess, running_gateway
from bench.machine import resident_bytes
from bench.run.driving import status_of
from bench.setup import Setup, progress
from bench.storm import strangers
from bench.storm.plan import Plan
from bench.storm.strangers import Scene
from bench.storm.watching import Logged, Memory, cpu_seconds, read_log, watched_memory
from gateway.engine.names import NGRAM
from models.errors import UserError

PLAIN = {"policy": "off"}
"""Decoding alone: no choice of the controller's is in the figures."""

_ASKED = "Tell me a long story about ship number {number}."
_GATHER_SECONDS = 60.0
_SETTLE_SECONDS = 15.0
_CANCEL_SECONDS = 1.0
_POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Window:
    """`tpot_ms` is that of each stream while all of them streamed, for `seconds`."""

    storm: bool
    seconds: float
    tpot_ms: tuple[float, ...]
    connections: int

    @property
    def mean_ms(self) -> float:
        return fmean(self.tpot_ms)


@dataclass(frozen=True, slots=True)
class Outcome:
    """`resident` after the warm-up and behind each storm; `slots` in all, and `free` ones behind
    each storm. Processor seconds are those of the windows in the storm."""

    windows: tuple[Window, ...]
    resident: tuple[int, ...]
    memory: Memory
    slots: int
    free: tuple[int, ...]
    waiting: tuple[int, ...]
    acts: Counter[str]
    log: tuple[Logged, ...]
    gateway_cpu: float
    bench_cpu: float


async def measure(setup: Setup, plan: Plan) -> Outcome:
    """Raises `GatewayError` where one of those who generate fails."""
    settings = {"slots": plan.generating, "speculation_drafter": NGRAM}
    async with (
        running_gateway(setup, **settings) as gateway,
        watched_memory(gateway.pid) as memory,
        AsyncExitStack() as stack,
    ):
        clients = [
            await stack.enter_async_context(connected(gateway.url)) for _ in range(plan.generating)
        ]
        return await _Weather(gateway, plan, clients, memory).bear()


class _Weather:
    def __init__(
        self, gateway: GatewayProcess, plan: Plan, clients: Sequence[Client], memory: Memory
    ) -> None:
        self._gateway = gateway
        self._plan = plan
        self._clients = clients
        self._memory = memory
        self._scene = Scene(gateway.url, plan.every, random.Random(plan.seed))
        self._free: list[int] = []
        self._waiting: list[int] = []
        self._cpu = [0.0, 0.0]

    async def bear(self) -> Outcome:
        slots = (await status_of(self._gateway.url))["slots"]
        await self._window(storm=False)  # the first answers of a process are slower
        resident = [resident_bytes(self._gateway.pid)]
        windows = []
        for number in range(self._plan.windows):
            # In turn the one and the other first: a machine that gets slower favours neither.
            calm = None if number % 2 else await self._window(storm=False)
            async with self._storm():
                storm = await self._window(storm=True)
            await self._settle(slots)
            resident.append(resident_bytes(self._gateway.pid))
            calm = calm or await self._window(storm=False)
            windows += [calm, storm]
            progress(
                f"storm: {number + 1} of {self._plan.windows}, {calm.mean_ms:.2f} ms alone,"
                f" {storm.mean_ms:.2f} ms among {storm.connections}"
            )
        return Outcome(
            windows=tuple(windows),
            resident=tuple(resident),
            memory=self._memory,
            slots=slots,
            free=tuple(self._free),
            waiting=tuple(self._waiting),
            acts=self._scene.acts,
            log=tuple(read_log(self._gateway.log)),
            gateway_cpu=self._cpu[0],
            bench_cpu=self._cpu[1],
        )

    @asynccontextmanager
    async def _storm(self) -> AsyncIterator[None]:
        """All strangers are connected within; afterwards none is."""
        plan, scene = self._plan, self._scene
        kinds = (
            (strangers.stalling, plan.stalling),
            (strangers.dropping, plan.dropping),
            (strangers.garbling, plan.garbling),
            (strangers.idle, plan.idle),
        )
        tasks: list[asyncio.Task[None]] = []
        for kind, count in kinds:
            tasks += [asyncio.create_task(kind(scene), name=kind.__name__) for _ in range(count)]
        try:
            await self._gathered()
            yield
        finally:
            scene.slots_taken.clear()
            await _end(tasks)
        for task in tasks:
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error

    async def _gathered(self) -> None:
        """Until nearly all are there: some are always about to come again."""
        try:
            async with asyncio.timeout(_GATHER_SECONDS):
                while self._scene.open < 0.95 * self._plan.strangers:  # noqa: ASYNC110
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            raise UserError(
                f"only {self._scene.open} of {self._plan.strangers} connections came about;"
                " is the limit of open files (ulimit -n) high enough?",
                code="usage",
            ) from None

    async def _window(self, *, storm: bool) -> Window:
        gateway, bench = cpu_seconds(self._gateway.pid), time.process_time()
        seen: list[list[Arrival]] = [[] for _ in self._clients]
        connections = self._scene.open + len(self._clients)
        async with asyncio.TaskGroup() as group:
            asked = [
                group.create_task(self._ask(client, number, arrivals))
                for number, (client, arrivals) in enumerate(zip(self._clients, seen, strict=True))
            ]
            while not all(seen):
                await asyncio.sleep(0.01)
                _raise_failure(asked)
            if storm:
                self._scene.slots_taken.set()
            await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
            self._scene.slots_taken.clear()
        if storm:
            self._cpu[0] += cpu_seconds(self._gateway.pid) - gateway
            self._cpu[1] += time.process_time() - bench
        begin, end = common_span(seen)
        return Window(
            storm=storm,
            seconds=end - begin,
            tpot_ms=tuple(tpot_within(arrivals, begin, end) for arrivals in seen),
            connections=connections,
        )

    async def _ask(self, client: Client, number: int, seen: list[Arrival]) -> WireAnswer:
        return await client.ask(
            _ASKED.format(number=number),
            max_tokens=self._plan.tokens,
            speculation=PLAIN,
            provenance=True,
            ignore_eos=True,
            seen=seen,
        )

    async def _settle(self, slots: int) -> None:
        """Until every slot is free and nobody waits, or it is plain that this will not be."""
        deadline = time.monotonic() + _SETTLE_SECONDS
        while True:
            status = await status_of(self._gateway.url)
            free, waiting = status["free_slots"], status["waiting"]
            if (free == slots and waiting == 0) or time.monotonic() > deadline:
                break
            await asyncio.sleep(_POLL_SECONDS)
        self._free.append(free)
        self._waiting.append(waiting)


async def _end(tasks: Collection[asyncio.Task[None]]) -> None:
    """Cancel them until they have ended: in the moment in which a connection ends, too, a single
    cancellation can be lost."""
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=_CANCEL_SECONDS)


def common_span(seen: Sequence[Sequence[Arrival]]) -> tuple[float, float]:
    """From the last stream's first arrival to the first stream's last one."""
    return max(each[0].at for each in seen), min(each[-1].at for each in seen)


def tpot_within(arrivals: Sequence[Arrival], begin: float, end: float) -> float:
    """Milliseconds for each token that came behind `begin`, up to the last arrival within `end`.

    Raises `GatewayError` where there is no such token.
    """
    within = [arrival for arrival in arrivals if begin <= arrival.at <= end]
    tokens = sum(arrival.tokens for arrival in within[1:])
    if not tokens:
        raise GatewayError("a window was too short for two arrivals of every stream")
    return (within[-1].at - within[0].at) * 1e3 / tokens


def _raise_failure(asked: Sequence[asyncio.Task[WireAnswer]]) -> None:
    for task in asked:
        if task.done():
            task.result()
