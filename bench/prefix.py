"""Time to first token of a long prompt, and of its continuation in the same conversation."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median

from bench.client import Client, WireAnswer, connected
from bench.gateway_process import running_gateway
from bench.report import Findings, Promise, Table, milliseconds, none_of, number
from bench.setup import Setup, progress
from bench.texts import Texts
from models.errors import UserError

LEAST = 5.0
"""How many times shorter the continuation's time to first token is."""

_ANSWER_TOKENS = 16
_INSTRUCTION = "Summarise the following text number {number} in your own words."
_CONTINUATION = "Now say it in one sentence."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--tokens", type=int, default=1000, metavar="N", help="of the prompt; default: 1000"
    )
    parser.add_argument(
        "--repeats",
        type=int,
        default=7,
        metavar="N",
        help="conversations; default: 7, with --quick at most 3",
    )


def run(parsed: argparse.Namespace, setup: Setup) -> Findings:
    repeats = min(3, parsed.repeats) if setup.quick else parsed.repeats
    if repeats < 1 or parsed.tokens < 1:
        raise UserError("--tokens and --repeats must be at least 1.", code="usage")
    turns = asyncio.run(_measure(setup, parsed.tokens, repeats))
    return _findings(turns, {"tokens": parsed.tokens, "repeats": repeats})


@dataclass(frozen=True, slots=True)
class Turns:
    """A prompt and its continuation: tokens in all, those found in the K/V, and the wait."""

    first_tokens: int
    first_cached: int
    first_ms: float
    second_tokens: int
    second_cached: int
    second_ms: float

    @property
    def reused(self) -> bool:
        """Whether the continuation found all of the first prompt."""
        return self.second_cached >= self.first_tokens


async def _measure(setup: Setup, tokens: int, repeats: int) -> list[Turns]:
    texts = Texts(setup.package)
    material = [turn for question in setup.questions for turn in question.turns]
    turns: list[Turns] = []
    async with running_gateway(setup) as gateway:
        # Each conversation has a connection of its own; the one before all measures nothing.
        for repeat in range(repeats + 1):
            # The number comes first, so that no two prompts share more than the system prompt.
            instruction = _INSTRUCTION.format(number=repeat + 1)
            shifted = material[repeat % len(material) :] + material[: repeat % len(material)]
            text = texts.of_length(instruction, shifted, tokens)
            async with connected(gateway.url) as client:
                measured = await _conversation(client, text)
            if repeat:
                turns.append(measured)
                progress(f"prefix: {repeat} of {repeats} conversations")
    return turns


async def _conversation(client: Client, text: str) -> Turns:
    first = await client.ask(text, max_tokens=_ANSWER_TOKENS)
    second = await client.ask(_CONTINUATION, max_tokens=_ANSWER_TOKENS, previous=first.id)
    return Turns(
        first_tokens=first.prompt_tokens,
        first_cached=first.cached_tokens,
        first_ms=_wait_ms(first),
        second_tokens=second.prompt_tokens,
        second_cached=second.cached_tokens,
        second_ms=_wait_ms(second),
    )


def _wait_ms(answer: WireAnswer) -> float:
    """Time to the first token; to the end of the prefill for an answer that has none."""
    if answer.ttft_ms is not None:
        return answer.ttft_ms
    waited: float = answer.timings["queue_ms"] + answer.timings["prefill_ms"]
    return waited


def _findings(turns: Sequence[Turns], described: dict[str, object]) -> Findings:
    first = median(turn.first_ms for turn in turns)
    second = median(turn.second_ms for turn in turns)
    rows = [
        (
            str(index),
            str(turn.first_tokens),
            str(turn.first_cached),
            milliseconds(turn.first_ms),
            str(turn.second_tokens),
            str(turn.second_cached),
            milliseconds(turn.second_ms),
            number(turn.first_ms / turn.second_ms, 1),
        )
        for index, turn in enumerate(turns, start=1)
    ]
    rows.append(
        ("median", "", "", milliseconds(first), "", "", milliseconds(second), _times(first, second))
    )
    header = ("", "prompt", "cached", "TTFT ms", "next turn", "cached", "TTFT ms", "times")
    table = Table("Time to first token", header, rows)
    figures = {
        "first_ms": first,
        "second_ms": second,
        "conversations": [asdict(turn) for turn in turns],
    }
    promises = [
        Promise("first turn / next turn", first / second, ">=", LEAST, "x"),
        none_of("next turns that lost the prefix", sum(not turn.reused for turn in turns)),
    ]
    return Findings(described, figures, promises, [table])


def _times(first: float, second: float) -> str:
    return number(first / second, 1)
