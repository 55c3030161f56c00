"""Clients killed in mid-stream: their slots are free within a round, memory is as before.

Every wave fills all slots, waits until each answer streams, resets the sockets all at once and
asks as many probes: how long they queue for a slot says when it was freed. The warm-up touches
what the kills will: every slot's K/V to the length of the longest prompt.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any

from bench.client import Client, GatewayError, WireAnswer, connect, connected
from bench.gateway_process import running_gateway
from bench.machine import resident_bytes
from bench.report import Findings, Promise, Table, milliseconds, none_of
from bench.setup import Setup, progress
from models.errors import UserError

SLOTS = 4
GROWTH_MIB = 20.0
"""Growth of resident memory between the kills of the warm-up and the last one."""

ROUND_SLACK_MS = 10.0
"""What the loopback and the event loop may add to a round."""

_DELTAS = 3
_SETTLE_SECONDS = 1.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--kills",
        type=int,
        default=200,
        metavar="N",
        help="connections reset in mid-answer; default: 200, with --quick at most 40",
    )
    parser.add_argument(
        "--warm-up",
        type=int,
        default=20,
        metavar="N",
        help="kills before memory is looked at; default: 20",
    )


def run(parsed: argparse.Namespace, setup: Setup) -> Findings:
    kills = min(40, parsed.kills) if setup.quick else parsed.kills
    if min(kills, parsed.warm_up) < 1:
        raise UserError("--kills and --warm-up must be at least 1.", code="usage")
    outcome = asyncio.run(_measure(setup, kills, parsed.warm_up))
    return _findings(outcome, {"kills": kills, "warm_up": parsed.warm_up, "slots": SLOTS})


@dataclass(frozen=True, slots=True)
class Outcome:
    """`queue_ms` of the probes behind each wave; `round_ms` of a full run of all slots.

    `resident` bytes of the gateway: after the warm-up, half of the kills, and all of them.
    """

    kills: int
    round_ms: float
    queue_ms: Sequence[float]
    refused: int
    resident: Sequence[int]


async def _measure(setup: Setup, kills: int, warm_up: int) -> Outcome:
    async with (
        running_gateway(setup, slots=SLOTS) as gateway,
        AsyncExitStack() as stack,
    ):
        url, pid = gateway.url, gateway.pid
        probes = [await stack.enter_async_context(connected(url)) for _ in range(SLOTS)]
        texts = [question.turns[0] for question in setup.questions]
        longest = max(texts, key=len)
        round_ms = await _round_ms(probes)
        await _waves(url, probes, [longest], SLOTS)
        await _waves(url, probes, texts, warm_up)
        resident = [await _resident(pid)]
        waits: list[float] = []
        refused = 0
        for part in (kills // 2, kills - kills // 2):
            queued, turned_away = await _waves(url, probes, texts, part)
            waits += queued
            refused += turned_away
            resident.append(await _resident(pid))
        return Outcome(kills, round_ms, waits, refused, resident)


async def _resident(pid: int) -> int:
    await asyncio.sleep(_SETTLE_SECONDS)
    return resident_bytes(pid)


async def _round_ms(probes: Sequence[Client]) -> float:
    """A round while all slots decode: the slowest mean time of a run."""
    answers = await _together(probes, "Tell me a long story about a ship.", 48)
    rounds: list[float] = [
        answer.timings["verify_ms"] / answer.timings["rounds"]
        for answer in answers
        if isinstance(answer, WireAnswer) and answer.timings["rounds"]
    ]
    if not rounds:
        raise UserError("the model answers nothing; there is no round to time.", code="usage")
    return max(rounds)


async def _waves(
    url: str, probes: Sequence[Client], texts: Sequence[str], kills: int
) -> tuple[list[float], int]:
    """Kill clients; milliseconds that probes queued, and how many were refused."""
    killed, refused = 0, 0
    waits: list[float] = []
    while killed < kills:
        size = min(SLOTS, kills - killed)
        streaming = (_stream(url, texts[(killed + index) % len(texts)]) for index in range(size))
        clients = await asyncio.gather(*streaming)
        await asyncio.gather(*(client.kill() for client in clients))
        killed += size
        for answer in await _together(probes, "Say hello.", 2):
            if isinstance(answer, WireAnswer):
                waits.append(answer.timings["queue_ms"])
            else:
                refused += 1
        progress(f"kills: {killed} of {kills}")
    return waits, refused


async def _stream(url: str, text: str) -> Client:
    """A client whose answer is streaming; short answers are asked for again."""
    client = await connect(url)
    deltas = 0
    request: dict[str, Any] = {"input": text, "max_output_tokens": 512}
    await client.send(request)
    while deltas < _DELTAS:
        event = await client.event()
        if event["type"] == "response.output_text.delta":
            deltas += 1
        elif event["type"] in ("response.completed", "response.incomplete"):
            deltas = 0
            await client.send({**request, "input": "Tell me a very long story."})
    return client


async def _together(
    probes: Sequence[Client], text: str, max_tokens: int
) -> list[WireAnswer | BaseException]:
    asked = (
        probe.ask(text, max_tokens=max_tokens, speculation={"policy": "off"}) for probe in probes
    )
    answers = await asyncio.gather(*asked, return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException) and not isinstance(answer, GatewayError):
            raise answer
    return answers


def _findings(outcome: Outcome, described: dict[str, object]) -> Findings:
    waits = list(outcome.queue_ms)
    high = quantiles(waits, n=20, method="inclusive")[-1] if len(waits) > 1 else None
    mebibytes = [count / (1 << 20) for count in outcome.resident]
    growth = mebibytes[-1] - mebibytes[0]
    rows = [
        ("clients killed", str(outcome.kills)),
        ("a round of all slots, ms", milliseconds(outcome.round_ms)),
        ("probes queued, median ms", milliseconds(median(waits)) if waits else "-"),
        ("probes queued, 95 of 100 within, ms", milliseconds(high)),
        ("probes queued, longest ms", milliseconds(max(waits)) if waits else "-"),
        ("probes refused", str(outcome.refused)),
        ("memory before, MiB", f"{mebibytes[0]:.1f}"),
        ("memory after half of them, MiB", f"{mebibytes[1]:.1f}"),
        ("memory after all, MiB", f"{mebibytes[2]:.1f}"),
    ]
    bound = round(outcome.round_ms + ROUND_SLACK_MS, 1)
    promises = [
        Promise("wait for a slot, 95 of 100", high, "<=", bound, "ms", "a round and 10 ms"),
        none_of("probes refused", outcome.refused),
        Promise("growth of memory", growth, "<=", GROWTH_MIB, "MiB"),
    ]
    figures = {
        "kills": outcome.kills,
        "round_ms": outcome.round_ms,
        "queue_ms": waits,
        "refused": outcome.refused,
        "resident_bytes": list(outcome.resident),
    }
    return Findings(described, figures, promises, [Table("Kills", ("", ""), rows)])
