"""One point of the grid, answered by all streams at once and timed while all of them run."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from bench.client import Arrival, Client, GatewayError, connected
from bench.synthetic.model import CostModel
from bench.synthetic.plan import FEWEST_ROUNDS, Plan, Point
from models.sampling.parameters import Sampling

_BIAS = 100.0
_PROMPT_WORDS = 24
_STREAMS = 1 << 10


@dataclass(frozen=True, slots=True)
class Steady:
    """Between the first moment at which every stream runs and the last one: times per token and
    per round of a stream in milliseconds, tokens a round advances, draft tokens verified in it,
    tokens behind which it stands in the middle of it."""

    token_ms: float
    round_ms: float
    tau: float
    proposed: float
    past: int


@dataclass(frozen=True, slots=True)
class Turn:
    """What was measured, and what the cost model said of the round before."""

    steady: Steady
    predicted_ms: float


async def turn_of(
    url: str, model: CostModel, plan: Plan, point: Point, streams: int, repeat: int, token: int
) -> Turn | None:
    """`token` is all that the target says. None where the streams hardly ran together.

    Raises `GatewayError`.
    """
    seen: list[list[Arrival]] = [[] for _ in range(streams)]
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connected(url)) for _ in range(streams)]
        asking = [
            _ask(client, plan, point, repeat * _STREAMS + stream, token, seen[stream])
            for stream, client in enumerate(clients)
        ]
        prompts = await _all(asking)
    steady = steady_of(seen, round(fmean(prompts)), point.length)
    return (
        None if steady is None else Turn(steady, model.round_ms(streams, point.length, steady.past))
    )


async def _all(asking: Sequence[Coroutine[Any, Any, int]]) -> list[int]:
    """What they give. Where one fails none goes on, and its error is raised."""
    failures: list[GatewayError] = []
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one) for one in asking]
    except* GatewayError as errors:
        failures += [error for error in errors.exceptions if isinstance(error, GatewayError)]
    if failures:
        raise failures[0]
    return [task.result() for task in tasks]


async def _ask(
    client: Client, plan: Plan, point: Point, number: int, token: int, seen: list[Arrival]
) -> int:
    """Tokens of the prompt. With one token only, drafts are as long as they may be from the start:
    copies of it always follow. What is drafted of the prompt may hold an end, which is none."""
    wire = point.wire if point.length == 0 else {**point.wire, "drafter": plan.drafter}
    answer = await client.ask(
        f"{number}" + " a" * _PROMPT_WORDS,
        max_tokens=plan.tokens(point),
        sampling=Sampling(logit_bias=((token, _BIAS),), seed=plan.seed + number),
        speculation=wire,
        provenance=True,
        ignore_eos=True,
        seen=seen,
    )
    return answer.prompt_tokens


def steady_of(seen: Sequence[Sequence[Arrival]], prompt_tokens: int, length: int) -> Steady | None:
    """None where there are too few rounds. Rounds at the end of an answer, whose drafts are cut to
    what is left of it, are left out."""
    whole = [_full(arrivals, length) for arrivals in seen]
    begin = max(arrivals[0].at for arrivals in seen)
    end = min(arrivals[-1].at if arrivals else begin for arrivals in whole)
    tokens = rounds = verified = before = 0
    for arrivals in whole:
        inside = [one for one in arrivals if begin < one.at <= end]
        past = [one for one in arrivals if one.at <= begin]
        tokens += sum(one.tokens for one in inside)
        verified += sum(one.verified for one in inside)
        rounds += inside[-1].round - past[-1].round if inside and past else 0
        before += sum(one.tokens for one in past)
    if rounds < FEWEST_ROUNDS * len(seen):
        return None
    milliseconds = (end - begin) * 1e3 * len(seen)
    return Steady(
        token_ms=milliseconds / tokens,
        round_ms=milliseconds / rounds,
        tau=tokens / rounds,
        proposed=verified / rounds,
        past=round(prompt_tokens + (before + tokens / 2) / len(seen)),
    )


def _full(arrivals: Sequence[Arrival], length: int) -> list[Arrival]:
    """Those whose rounds all began with a whole draft of room, the bonus token apart. Of several
    rounds that came together the last one may have begun with one token more than is left."""
    left = sum(arrival.tokens for arrival in arrivals)
    full: list[Arrival] = []
    before = -1
    for arrival in arrivals:
        several = arrival.round > before + 1
        if (left - arrival.tokens + 1 if several else left) <= length:
            break
        full.append(arrival)
        left, before = left - arrival.tokens, arrival.round
    return full
