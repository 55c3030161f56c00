"""Has a gateway of its own answer every prompt under every condition, interleaved.

A wave is some prompts answered under one condition. The same prompts follow at once under the next
condition, in an order that rotates, so that a machine that gets slower gets slower for all. With
one stream a wave is one prompt; with more it is twice as many prompts as streams, shuffled over
categories, and each stream takes the next prompt as soon as it is free.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from typing import Any, TypeVar

import aiohttp
import numpy as np

from bench.client import Client, GatewayError, connected
from bench.gateway_process import running_gateway
from bench.prompts import Question
from bench.run.observed import Observed, Outcome, Wave, observed
from bench.run.plan import Condition, Plan
from bench.run.schema import Absent
from bench.setup import Setup, progress
from gateway.engine.names import NGRAM
from gateway.engine.options import EngineOptions

Member = TypeVar("Member")

REFUSALS = ("unknown_drafter", "unsupported_value", "invalid_value", "missing_required_parameter")
"""Codes of the gateway's errors that say that it cannot do what a setting asks for."""

_WARM_UP = Question("warm-up", "warm-up", ("Count to ten.",))


async def drive(setup: Setup, plan: Plan) -> tuple[list[Outcome], dict[str, Any]]:
    """An outcome for every condition of `plan`, and the gateway's status at the end.

    Raises `GatewayError` where it fails without drafting: then nothing can be compared.
    """
    outcomes = [Outcome(condition) for condition in plan.conditions()]
    slots = max(EngineOptions().slots, *plan.concurrency)
    # Drafters load when they are first asked for: one that cannot must not keep the others away.
    async with running_gateway(setup, slots=slots, speculation_drafter=NGRAM) as gateway:
        watched = Watched(gateway.url)
        await _warm_up(watched, plan, outcomes)
        for sampling in plan.samplings:
            for streams in plan.concurrency:
                own = [
                    outcome
                    for outcome in outcomes
                    if (outcome.condition.sampling, outcome.condition.concurrency)
                    == (sampling, streams)
                ]
                await _drive(watched, setup.questions, plan, own, streams)
        return outcomes, await status_of(gateway.url)


async def status_of(url: str) -> dict[str, Any]:
    """The gateway's own report. Raises `GatewayError` where there is none."""
    try:
        async with aiohttp.ClientSession() as session, session.get(f"{url}/v1/status") as response:
            response.raise_for_status()
            status: dict[str, Any] = await response.json()
    except aiohttp.ClientError as error:
        raise GatewayError(f"no status: {error}") from None
    return status


class Watched:
    """A gateway at `url` whose count of failed drafts is looked at behind every wave."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._failures: dict[str, int] = {}

    async def wave(
        self, condition: Condition, questions: Sequence[Question], repeat: int, max_tokens: int
    ) -> Wave | Absent:
        """Raises `GatewayError` where nothing was drafted and it failed."""
        try:
            wave = await _wave(self._url, condition, questions, repeat, max_tokens)
        except GatewayError as error:
            if not condition.setting.drafts:
                raise
            refused = str(error).partition(":")[0] in REFUSALS
            return Absent("unsupported" if refused else "failed", str(error))
        problem = await self._new_failures()
        return wave if problem is None else Absent("failed", problem)

    async def _new_failures(self) -> str | None:
        problem = None
        for drafter in (await status_of(self._url))["drafters"]:
            name, failures = drafter["name"], drafter["failures"]
            if failures > self._failures.get(name, 0):
                problem = f"{name}: {drafter['problem']}"
            self._failures[name] = failures
        return problem


async def _warm_up(watched: Watched, plan: Plan, outcomes: Sequence[Outcome]) -> None:
    """The first answers of a process are slower: graphs are loaded, pages touched."""
    absent: dict[str, Absent] = {}
    tokens = min(plan.max_tokens, 32)
    for setting in plan.settings:
        problem = plan.unsupported.get(setting.drafter)
        if problem is not None:
            absent[setting.name] = Absent("unsupported", problem)
            continue
        seen = await watched.wave(Condition(setting, plan.samplings[0], 1), [_WARM_UP], 0, tokens)
        if isinstance(seen, Absent):
            absent[setting.name] = seen
            progress(f"run: {setting.name} is {seen.absent}: {seen.why}")
    for outcome in outcomes:
        outcome.absent = absent.get(outcome.condition.setting.name)


async def _drive(
    watched: Watched,
    questions: Sequence[Question],
    plan: Plan,
    outcomes: Sequence[Outcome],
    streams: int,
) -> None:
    count = 0
    for repeat in range(plan.repeats):
        for members in waves(questions, streams, plan.seed + repeat):
            present = [outcome for outcome in outcomes if outcome.absent is None]
            for outcome in rotated(present, count):
                await _enter(watched, outcome, members, repeat, plan.max_tokens)
            count += 1
            progress(f"run: {streams} streams, wave {count}")


async def _enter(
    watched: Watched, outcome: Outcome, members: Sequence[Question], repeat: int, max_tokens: int
) -> None:
    seen = await watched.wave(outcome.condition, members, repeat, max_tokens)
    if isinstance(seen, Absent):
        outcome.absent = seen
    else:
        outcome.waves.append(seen)


def waves(questions: Sequence[Question], streams: int, seed: int) -> Iterator[list[Question]]:
    """Every question once. None but the only wave has fewer questions than there are streams."""
    if streams == 1:
        yield from ([question] for question in questions)
        return
    order = np.random.default_rng(seed).permutation(len(questions))
    parts = max(1, len(questions) // (2 * streams))
    for part in np.array_split(order, parts):
        yield [questions[index] for index in part]


def rotated(members: Sequence[Member], count: int) -> list[Member]:
    """Each one is first in turn."""
    start = count % max(1, len(members))
    return [*members[start:], *members[:start]]


async def _wave(
    url: str, condition: Condition, questions: Sequence[Question], repeat: int, max_tokens: int
) -> Wave:
    waiting, answers = deque(questions), list[Observed]()

    async def stream(client: Client) -> None:
        while waiting:
            question = waiting.popleft()
            answer = await client.ask(
                question.turns[0],
                max_tokens=max_tokens,
                sampling=condition.sampling,
                speculation=condition.setting.wire,
                provenance=True,
            )
            answers.append(observed(question, repeat, answer))

    failures: list[str] = []
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(connected(url)) for _ in range(condition.concurrency)
        ]
        started = time.perf_counter()
        try:
            async with asyncio.TaskGroup() as group:
                for client in clients:
                    group.create_task(stream(client))
        except* GatewayError as errors:
            failures += [str(error) for error in errors.exceptions]
        seconds = time.perf_counter() - started
    if failures:
        raise GatewayError(failures[0])
    return Wave(seconds, tuple(answers))
