"""The gateway's time per token over a WebSocket against the raw cost of its target runs.

Both decode the same number of tokens behind the same number, in turns: a gateway in a process of
its own with speculation off, and bare runs of the target in this process. One waits while the
other works.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median

from bench.client import WireAnswer, connected
from bench.gateway_process import running_gateway
from bench.naturals import natural
from bench.report import Findings, Promise, Table, milliseconds, number
from bench.setup import Setup, progress
from bench.texts import Texts
from models.errors import UserError
from models.providers import select_provider
from models.slots import Slot
from models.target import Row, Target

MOST = 1.08
"""The gateway's time per token over the raw one."""

FEWEST_TOKENS = 16
_PREFILL = 128
_SETTLE_SECONDS = 0.1
_INSTRUCTION = "Write a very long and detailed story about the following text."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--past",
        default="64,512,1024",
        metavar="N[,N...]",
        help="prompt tokens; default: 64,512,1024",
    )
    parser.add_argument(
        "--max-tokens", type=int, default=48, metavar="N", help="of each answer; default: 48"
    )
    parser.add_argument(
        "--repeats",
        type=int,
        default=9,
        metavar="N",
        help="answers at each length; default: 9, with --quick at most 3",
    )


def run(parsed: argparse.Namespace, setup: Setup) -> Findings:
    pasts = parse_lengths(parsed.past)
    repeats = min(3, parsed.repeats) if setup.quick else parsed.repeats
    if parsed.max_tokens < FEWEST_TOKENS or repeats < 1:
        raise UserError(
            f"--max-tokens must be at least {FEWEST_TOKENS} and --repeats at least 1.",
            code="usage",
        )
    longest = max(pasts) + parsed.max_tokens
    if longest > setup.package.manifest.target.context_length:
        raise UserError(f"the package's context holds no {longest} tokens.", code="usage")
    measured = asyncio.run(_measure(setup, pasts, parsed.max_tokens, repeats))
    described = {"past": pasts, "max_tokens": parsed.max_tokens, "repeats": repeats}
    return _findings(measured, described)


def parse_lengths(text: str) -> list[int]:
    """Numbers of tokens separated by commas. Raises `UserError`."""
    lengths = [natural(part.strip()) for part in text.split(",")]
    known = [length for length in lengths if length is not None]
    if len(known) < len(lengths):
        raise UserError(f"{text!r} is not a list of numbers of tokens.", code="usage")
    return known


@dataclass(frozen=True, slots=True)
class Pair:
    """One repeat at one length: milliseconds per token, raw and through the gateway."""

    past: int
    tokens: int
    raw_ms: float
    gateway_ms: float


async def _measure(
    setup: Setup, pasts: Sequence[int], max_tokens: int, repeats: int
) -> list[Pair | None]:
    """`repeats` pairs for each length; None for a length whose answers were too short."""
    texts = Texts(setup.package)
    context = max(pasts) + max_tokens
    pairs: list[Pair | None] = []
    async with running_gateway(setup, context=context) as gateway:
        raw = _Raw(setup, context)
        for past in pasts:
            text = await _talkative(gateway.url, setup, texts, past, max_tokens)
            if text is None:
                pairs.append(None)
                continue
            for repeat in range(repeats):
                pairs.append(await _pair(gateway.url, raw, text, max_tokens, repeat))
            progress(f"overhead: {past} tokens done")
    return pairs


async def _talkative(
    url: str, setup: Setup, texts: Texts, past: int, max_tokens: int
) -> str | None:
    """A prompt of about `past` tokens that is answered at length. Warms up both sides' caches."""
    material = [turn for question in setup.questions for turn in question.turns]
    for start in range(min(8, len(material))):
        text = texts.of_length(_INSTRUCTION, material[start:], past)
        answer = await _ask(url, text, max_tokens)
        if answer.tokens >= FEWEST_TOKENS:
            return text
    return None


async def _pair(url: str, raw: _Raw, text: str, max_tokens: int, repeat: int) -> Pair:
    # Idle threads of ONNX Runtime spin for a moment before they sleep.
    await asyncio.sleep(_SETTLE_SECONDS)
    before = raw.tpot_ms() if repeat % 2 and raw.prepared else None
    if before is not None:
        await asyncio.sleep(_SETTLE_SECONDS)
    answer = await _ask(url, text, max_tokens)
    gateway_ms = answer.tpot_ms
    assert gateway_ms is not None, "the same prompt was answered at length before"
    if before is None:
        await asyncio.sleep(_SETTLE_SECONDS)
        raw.prepare(answer.prompt_tokens, answer.tokens)
        before = raw.tpot_ms()
    return Pair(answer.prompt_tokens, answer.tokens, before, gateway_ms)


async def _ask(url: str, text: str, max_tokens: int) -> WireAnswer:
    """Over a connection of its own: one kept open during raw runs would answer no pings."""
    async with connected(url) as client:
        return await client.ask(text, max_tokens=max_tokens, speculation={"policy": "off"})


class _Raw:
    """Bare target runs of one row of one token."""

    def __init__(self, setup: Setup, context: int) -> None:
        provider = select_provider("auto", setup.package.manifest.target.device)
        self._target = Target(setup.package, provider, setup.threads)
        self._slot: Slot = self._target.make_slots(1, context)[0]
        self._past = 0
        self._tokens = 0

    @property
    def prepared(self) -> bool:
        return self._tokens > 0

    def prepare(self, past: int, tokens: int) -> None:
        """Have `past` tokens in the K/V; `tpot_ms` then decodes as for `tokens` answer tokens."""
        if (past, tokens) == (self._past, self._tokens):
            return
        self._slot.truncate(0)
        while self._slot.length < past:
            chunk = (0,) * min(_PREFILL, past - self._slot.length)
            self._target.run([Row(self._slot, chunk, logits=0)])
            self._slot.commit(chunk)
        self._past, self._tokens = past, tokens
        self.tpot_ms()

    def tpot_ms(self) -> float:
        """Mean milliseconds of a run. The first token of an answer is the prefill's."""
        slot, runs = self._slot, self._tokens - 1
        slot.truncate(self._past)
        started = time.perf_counter()
        for _ in range(runs):
            self._target.run([Row(slot, (0,), logits=1)])
            slot.commit((0,))
        return (time.perf_counter() - started) * 1e3 / runs


def _findings(pairs: Sequence[Pair | None], described: dict[str, object]) -> Findings:
    rows, promises, figures = [], [], []
    if None in pairs:
        note = f"no answer of {FEWEST_TOKENS} tokens"
        promises.append(Promise("gateway / raw", None, "<=", MOST, "x", note))
    found = [pair for pair in pairs if pair is not None]
    for past in dict.fromkeys(pair.past for pair in found):
        members = [pair for pair in found if pair.past == past]
        raw = median(pair.raw_ms for pair in members)
        gateway = median(pair.gateway_ms for pair in members)
        best = (min(pair.raw_ms for pair in members), min(pair.gateway_ms for pair in members))
        paired = median(pair.gateway_ms / pair.raw_ms for pair in members)
        rows.append(
            (
                str(past),
                str(members[0].tokens),
                milliseconds(raw),
                milliseconds(gateway),
                number(gateway / raw, 3),
                number(paired, 3),
                milliseconds(best[0]),
                milliseconds(best[1]),
            )
        )
        promises.append(Promise(f"{past} tokens: gateway / raw", gateway / raw, "<=", MOST, "x"))
        figures.append({"past": past, "raw_ms": raw, "gateway_ms": gateway, "paired": paired})
    header = (
        "prompt tokens",
        "tokens",
        "raw ms",
        "gateway ms",
        "ratio",
        "of pairs",
        "least raw",
        "least gateway",
    )
    table = Table("Time per token, medians", header, rows)
    data = {"lengths": figures, "pairs": [asdict(pair) for pair in found]}
    return Findings(described, data, promises, [table])
