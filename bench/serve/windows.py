"""A window of load under one policy: streams that are never idle, or arrivals that do not wait."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, cycle, islice
from typing import Any

import numpy as np

from bench.client import GatewayError, connected
from bench.prompts import Question
from bench.serve.plan import Load, Plan
from bench.serve.requests import Request, ask, unsent

RETRY_SECONDS = 1.0
"""What the gateway tells whom it refuses because its queue is full."""


@dataclass(frozen=True, slots=True)
class Window:
    """All requests of a window, and its seconds from the first one's time to the last one's end."""

    requests: tuple[Request, ...]
    seconds: float

    @property
    def tokens(self) -> int:
        return sum(request.tokens for request in self.requests)


async def window_of(
    url: str,
    plan: Plan,
    load: Load,
    questions: Sequence[Question],
    wire: Mapping[str, Any],
    seed: int,
) -> Window:
    """The same `seed` gives the same prompts in the same order, at the same times."""
    if load.rate is None:
        assert load.streams is not None, "a load is closed or open"
        asked = chosen(questions, plan.window(load.streams), seed)
        requests = await _closed(url, plan, load.streams, asked, wire)
    else:
        times = arrivals(load.rate, plan.seconds, seed)
        requests = await _open(url, plan, times, chosen(questions, len(times), seed), wire)
    started = min(request.due for request in requests)
    return Window(tuple(requests), max(request.ended for request in requests) - started)


def chosen(questions: Sequence[Question], count: int, seed: int) -> list[Question]:
    """`count` of them: all in a shuffled order, again and again."""
    order = np.random.default_rng(seed).permutation(len(questions))
    return [questions[index] for index in islice(cycle(order), count)]


def arrivals(rate: float, seconds: float, seed: int) -> list[float]:
    """Seconds at which requests of a Poisson process arrive before `seconds`; at least one does."""
    noise = np.random.default_rng(seed)
    gaps = noise.exponential(1 / rate, size=max(8, round(4 * rate * seconds)))
    within = [at for at in accumulate(gaps.tolist()) if at < seconds]
    return within or [0.0]


async def _closed(
    url: str, plan: Plan, streams: int, questions: Sequence[Question], wire: Mapping[str, Any]
) -> list[Request]:
    """A stream that is refused waits as it is told to, and goes on with the next prompt."""
    waiting, done = deque(questions), list[Request]()

    async def stream() -> None:
        try:
            async with connected(url) as client:
                while waiting:
                    request = await ask(client, plan, waiting.popleft(), wire, time.perf_counter())
                    done.append(request)
                    if request.ending == "failed":
                        return  # its socket may be gone with it
                    if request.ending == "refused":
                        await asyncio.sleep(RETRY_SECONDS)
        except GatewayError as error:
            done.append(unsent(time.perf_counter(), error))

    async with asyncio.TaskGroup() as group:
        for _ in range(streams):
            group.create_task(stream())
    return done


async def _open(
    url: str,
    plan: Plan,
    times: Sequence[float],
    questions: Sequence[Question],
    wire: Mapping[str, Any],
) -> list[Request]:
    """A request counts from when it was due, also where this process was late to send it."""
    started = time.perf_counter()

    async def arrive(at: float, question: Question) -> Request:
        due = started + at
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        try:
            async with connected(url) as client:
                return await ask(client, plan, question, wire, due)
        except GatewayError as error:
            return unsent(due, error)

    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(arrive(at, question))
            for at, question in zip(times, questions, strict=True)
        ]
    return [task.result() for task in tasks]
