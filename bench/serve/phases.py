"""A load that changes: streams come and go while the first one looks at its rounds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any

from bench.client import Arrival, Client, GatewayError, WireAnswer, connected
from bench.prompts import Question
from bench.serve.decoding import Decoded, decoded_of
from bench.serve.plan import Plan
from bench.serve.windows import chosen


@dataclass(frozen=True, slots=True)
class Phase:
    """`tokens` of all streams came within `seconds`; `widths` are the draft tokens verified in
    each round of the first stream, `decoded` the answers whose decoding lies within the phase."""

    streams: int
    seconds: float
    tokens: int
    widths: tuple[float, ...]
    decoded: tuple[Decoded, ...]


@dataclass(slots=True)
class _Stream:
    """A stream with what it saw, answer by answer."""

    questions: Sequence[Question]
    answers: list[list[Arrival]] = field(default_factory=list)
    ended: list[tuple[Question, WireAnswer]] = field(default_factory=list)

    async def ask(
        self, client: Client, question: Question, plan: Plan, wire: Mapping[str, Any]
    ) -> None:
        self.answers.append([])
        answer = await client.ask(
            question.turns[0],
            max_tokens=plan.max_tokens,
            sampling=plan.sampling,
            speculation=wire,
            provenance=True,
            seen=self.answers[-1],
        )
        self.ended.append((question, answer))

    async def go_on(self, url: str, plan: Plan, wire: Mapping[str, Any]) -> None:
        """Until it is cancelled."""
        async with connected(url) as client:
            for question in cycle(self.questions):
                await self.ask(client, question, plan, wire)

    def tokens(self, begin: float, end: float) -> int:
        seen = (arrival for answer in self.answers for arrival in answer)
        return sum(arrival.tokens for arrival in seen if begin < arrival.at <= end)

    def decoded(self, begin: float, end: float) -> list[Decoded]:
        found = [decoded_of(question, answer, begin, end) for question, answer in self.ended]
        return [one for one in found if one is not None]


async def phases_of(
    url: str, plan: Plan, questions: Sequence[Question], wire: Mapping[str, Any], seed: int
) -> list[Phase]:
    """The phases of `plan`, one behind the other. Raises `GatewayError` where a stream fails.

    A phase ends with an answer of the first stream. Streams that are too many then are gone at
    once: what they were saying is cancelled.
    """
    failures: list[GatewayError] = []
    found: list[Phase] = []
    try:
        async with asyncio.TaskGroup() as group, connected(url) as client:
            found = await _Phases(url, plan, questions, wire, seed, group).run(client)
    except* GatewayError as errors:
        failures += [error for error in errors.exceptions if isinstance(error, GatewayError)]
    if failures:
        raise failures[0]
    return found


class _Phases:
    def __init__(
        self,
        url: str,
        plan: Plan,
        questions: Sequence[Question],
        wire: Mapping[str, Any],
        seed: int,
        group: asyncio.TaskGroup,
    ) -> None:
        self._url = url
        self._plan = plan
        self._questions = questions
        self._wire = wire
        self._seed = seed
        self._group = group
        self._others: list[tuple[_Stream, asyncio.Task[None]]] = []

    async def run(self, client: Client) -> list[Phase]:
        plan, first = self._plan, self._stream(0)
        asked = cycle(first.questions)
        phases: list[Phase] = []
        for streams in plan.phases:
            self._become(streams)
            began, done = time.perf_counter(), len(first.answers)
            for _ in range(plan.answers):
                await first.ask(client, next(asked), plan, self._wire)
            ended = time.perf_counter()
            seen = [first, *(stream for stream, _ in self._others)]
            phases.append(
                Phase(
                    streams,
                    ended - began,
                    sum(stream.tokens(began, ended) for stream in seen),
                    widths(first.answers[done:]),
                    tuple(one for stream in seen for one in stream.decoded(began, ended)),
                )
            )
        self._become(1)
        return phases

    def _stream(self, number: int) -> _Stream:
        own, others = shared_out(self._plan, self._questions, self._seed)
        return _Stream(chosen(others, len(others), self._seed + number) if number else own)

    def _become(self, streams: int) -> None:
        """So many streams, the first one among them."""
        while len(self._others) > streams - 1:
            self._others.pop()[1].cancel()
        while len(self._others) < streams - 1:
            stream = self._stream(1 + len(self._others))
            task = self._group.create_task(stream.go_on(self._url, self._plan, self._wire))
            self._others.append((stream, task))


def shared_out(
    plan: Plan, questions: Sequence[Question], seed: int
) -> tuple[list[Question], list[Question]]:
    """What the first stream asks, and what all others do. Where there are enough it has prompts of
    its own for every answer: how far the others come under a policy puts none of them into the
    gateway's cache."""
    order = chosen(questions, len(questions), seed)
    needed = plan.answers * len(plan.phases)
    return (order[:needed], order[needed:]) if needed < len(order) else (order, order)


def widths(answers: Sequence[Sequence[Arrival]]) -> tuple[float, ...]:
    """Draft tokens verified in each round, the prompt's left out. Rounds that arrived together
    share what was verified in them evenly."""
    found: list[float] = []
    for arrivals in answers:
        before = 0
        for arrival in arrivals:
            rounds = arrival.round - before
            found += [arrival.verified / rounds] * rounds if rounds else []
            before = arrival.round
    return tuple(found)
