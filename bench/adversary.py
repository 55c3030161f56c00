"""What a drafter costs that turns against its request: always wrong, or slow, in mid-answer.

On prompts, through an engine of the package, one at a time. A drafter is injected that knows the
answer: it drafts what plain decoding said and is sure of it, until it turns. From there on its
drafts are wrong, as sure as before, or as right as before but slow. Every prompt is answered in
all ways and without speculation, in turn. The loss is the time that the tokens from the turn on
take longer than in plain decoding, as a share of plain decoding's whole answer: what was gained
before the turn does not make up for it.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from bench.answers import first_prompt
from bench.report import Findings, Promise, Table, number
from bench.run.statistics import ratio_interval, ratio_of_means
from bench.setup import Setup, progress
from gateway.engine.engine import Engine
from gateway.engine.options import EngineOptions
from gateway.engine.requests import Delta, Finished, GenerationRequest, Speculation
from models.draft import Draft, Later, at_once
from models.drafters.cascade import Cascade
from models.errors import UserError
from models.sampling.sampler import Sampler
from models.slots import Slot

LOSS = 0.03
"""Of the time of a plain answer."""

LONGEST_PROMPT = 512
_SURE = 0.9
_LEAST_PROMPTS = 2
_LEAST_TOKENS = 30


@dataclass(frozen=True, slots=True)
class Adversary:
    """How a drafter behaves: it turns at a share of the answer.

    `run_ms` is the time of its drafts where it runs like a graph (None: it is free), and `then_ms`
    after the turn. `right` is the probability that a token is right, given those before, before the
    turn, and `then_right` after it.
    """

    name: str
    turns_at: float
    right: float
    then_right: float
    run_ms: float | None = None
    then_ms: float | None = None


ADVERSARIES = (
    Adversary("free, always wrong", 0.0, 0.0, 0.0),
    Adversary("free, turns wrong", 1 / 3, 0.95, 0.0),
    Adversary("a graph, turns wrong", 1 / 3, 0.8, 0.0, 2.0, 2.0),
    Adversary("a graph, turns slow", 1 / 3, 0.6, 0.6, 2.0, 60.0),
)
PLAIN = "off"


class AdversarialDrafter:
    """Knows `answer`, the ids that plain decoding says behind the prompt."""

    def __init__(self, kind: Adversary, answer: Sequence[int], vocab_size: int, seed: int) -> None:
        self.name = "adversary"
        self.runs_graph = kind.run_ms is not None
        self._kind = kind
        self._answer = answer
        self._vocab_size = vocab_size
        self._said = 0
        self._chance = random.Random(seed)

    def reset(self, tokens: Sequence[int]) -> None:
        self._said = 0

    def commit(self, tokens: Sequence[int], later: Later = at_once) -> None:
        self._said += len(tokens)

    def propose(self, budget: int) -> Draft:
        kind = self._kind
        turned = self._said >= kind.turns_at * len(self._answer)
        right, run_ms = (kind.then_right, kind.then_ms) if turned else (kind.right, kind.run_ms)
        if run_ms is not None:
            time.sleep(run_ms / 1e3)
        coming = self._answer[self._said : self._said + budget]
        tokens = tuple(
            token if self._chance.random() < right else (token + 1) % self._vocab_size
            for token in coming
        )
        sure = kind.right or _SURE  # as before the turn
        return Draft(tokens, confidence=(sure,) * len(tokens), source=self.name)


class AdversarialEngine(Engine):
    """An engine whose requests are drafted for by `adversary`, where one is set."""

    adversary: AdversarialDrafter | None = None

    def make_drafters(self, request: GenerationRequest, slot: Slot, sampler: Sampler) -> Cascade:
        if self.adversary is None:
            return super().make_drafters(request, slot, sampler)
        return self.drafters.combine([self.adversary], request.speculation, greedy=True)


@dataclass(frozen=True, slots=True)
class Timed:
    """An answer's ids, and by token the milliseconds since the first one at which it was there."""

    ids: tuple[int, ...]
    at_ms: tuple[float, ...]

    def since(self, token: int) -> float:
        """Milliseconds from the first arrival at or behind `token` to the end."""
        return self.at_ms[-1] - self.at_ms[min(token, len(self.at_ms) - 1)]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--max-tokens", type=int, default=300, metavar="N", help="of an answer; default: 300"
    )
    parser.add_argument(
        "--repeats",
        type=int,
        default=3,
        metavar="N",
        help="answers of a prompt in each way; default: 3, with --quick 1",
    )


def run(parsed: argparse.Namespace, setup: Setup) -> Findings:
    if parsed.max_tokens < _LEAST_TOKENS or parsed.repeats < 1:
        raise UserError(
            f"--max-tokens must be at least {_LEAST_TOKENS} and --repeats at least 1.", code="usage"
        )
    repeats = 1 if setup.quick else parsed.repeats
    measured = asyncio.run(_measure(setup, parsed.max_tokens, repeats))
    return _findings(measured, parsed.max_tokens, repeats)


Answers = dict[str, list[Timed]]
"""By adversary's name, or `PLAIN`: one prompt's answers."""


async def _measure(setup: Setup, max_tokens: int, repeats: int) -> list[Answers]:
    options = EngineOptions(threads=setup.threads, slots=1)
    engine = await AdversarialEngine.start(setup.package, options)
    assert isinstance(engine, AdversarialEngine)
    try:
        prompts = [first_prompt(engine, question.turns[0]) for question in setup.questions]
        prompts = [prompt for prompt in prompts if len(prompt.ids) <= LONGEST_PROMPT]
        if len(prompts) < _LEAST_PROMPTS:
            raise UserError(
                f"at least {_LEAST_PROMPTS} prompts of up to {LONGEST_PROMPT} tokens are needed.",
                code="usage",
            )
        found = []
        for index, prompt in enumerate(prompts):
            found.append(await _prompt(engine, prompt.ids, max_tokens, repeats, index))
            progress(f"adversary: prompt {index + 1} of {len(prompts)}")
        return found
    finally:
        await engine.close()


async def _prompt(
    engine: AdversarialEngine, prompt: tuple[int, ...], max_tokens: int, repeats: int, seed: int
) -> Answers:
    plain = await _answer(engine, prompt, max_tokens, None, seed)
    ways = [None, *ADVERSARIES]
    answers: Answers = {way.name if way else PLAIN: [] for way in ways}
    for repeat in range(repeats):
        for place in range(len(ways)):
            way = ways[(place + repeat + seed) % len(ways)]
            timed = await _answer(engine, prompt, max_tokens, way, seed, plain.ids)
            assert timed.ids == plain.ids, "speculation changed the answer"
            answers[way.name if way else PLAIN].append(timed)
    return answers


async def _answer(
    engine: AdversarialEngine,
    prompt: tuple[int, ...],
    max_tokens: int,
    way: Adversary | None,
    seed: int,
    known: Sequence[int] = (),
) -> Timed:
    engine.adversary = None
    if way is not None:
        vocab_size = engine.package.manifest.target.vocab_size
        engine.adversary = AdversarialDrafter(way, known, vocab_size, seed)
    speculation = Speculation(policy="cost" if way is not None else "off")
    request = GenerationRequest(
        prompt, max_tokens=max_tokens, ignore_eos=True, speculation=speculation
    )
    ids: list[int] = []
    at: list[float] = []
    async with engine.open(request) as generation:
        async for event in generation:
            if isinstance(event, Delta):
                ids += event.ids
                at += [time.perf_counter() * 1e3] * len(event.ids)
            elif isinstance(event, Finished):
                return Timed(tuple(ids), tuple(ms - at[0] for ms in at))
    raise RuntimeError("the generation ended without its last event")


def losses(
    answers: Sequence[Answers], way: Adversary, max_tokens: int
) -> list[tuple[float, float]]:
    """By prompt: milliseconds lost behind the turn, and those of plain decoding's whole answer."""
    turn = int(way.turns_at * max_tokens)
    found = []
    for each in answers:
        own = median(timed.since(turn) for timed in each[way.name])
        plain = median(timed.since(turn) for timed in each[PLAIN])
        found.append((own - plain, median(timed.since(0) for timed in each[PLAIN])))
    return found


def _findings(answers: Sequence[Answers], max_tokens: int, repeats: int) -> Findings:
    rows, promises, figures = [], [], []
    for way in ADVERSARIES:
        pairs = losses(answers, way, max_tokens)
        loss = ratio_of_means(pairs)
        low, high = ratio_interval(pairs, 0)
        whole = median(
            timed.since(0) / median(plain.since(0) for plain in each[PLAIN])
            for each in answers
            for timed in each[way.name]
        )
        figures.append(
            {"adversary": way.name, "loss": loss, "interval": [low, high], "of_off": whole}
        )
        interval = f"{low * 100:.1f} to {high * 100:.1f}"
        rows.append((way.name, number(loss * 100), interval, number(whole)))
        promises.append(
            Promise(f"loss: {way.name}", loss * 100, "<=", LOSS * 100, " %", f"95 %: {interval}")
        )
    described = {"prompts": len(answers), "max_tokens": max_tokens, "repeats": repeats}
    title = f"Behind the turn, % of a plain answer of {max_tokens} tokens"
    header = ("drafter", "lost", "95 % interval", "whole answer, of off")
    table = Table(title, header, rows)
    return Findings(described, {"adversaries": figures}, promises, (table,))
