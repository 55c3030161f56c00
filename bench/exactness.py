"""Greedy ids must be bit-identical whatever speculation, concurrency, chunking, prefix reuse do.

The reference of each prompt is generated alone, cold, prefilled whole and without speculation.
Then, one request at a time: the same prompt warm, and the conversation's next turn (its answer of
half the length) on its own K/V against that turn cold. Two at a time: a prefix copied from a slot
that is running. Four at a time: every variant of `variants.MIXED`, four prompts mixed.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench.answers import Answer, first_prompt, generate, margin, next_prompt
from bench.ledger import Ledger, Mismatch
from bench.prompts import Question
from bench.report import Findings, Promise, Table, none_of
from bench.setup import Setup, progress
from bench.texts import Texts
from bench.variants import (
    BUSY,
    CONCURRENCY,
    CONTINUED,
    COPIED,
    MIXED,
    REFERENCE,
    WARM,
    Variant,
    packs,
)
from gateway.engine.conversation import Prompt
from gateway.engine.engine import Engine
from gateway.engine.options import EngineOptions
from gateway.engine.requests import GenerationRequest
from models.errors import UserError
from models.slots import COPY_WORTHWHILE

_QUICK = 3
"""With --quick every third variant runs, another third with each group of prompts."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--max-tokens", type=int, default=128, metavar="N")


def run(parsed: argparse.Namespace, setup: Setup) -> Findings:
    if parsed.max_tokens < 1:
        raise UserError("--max-tokens must be at least 1.", code="usage")
    return asyncio.run(_run(setup, parsed.max_tokens))


@dataclass(frozen=True, slots=True)
class Case:
    """A prompt, and the answer that everything must agree with."""

    question: Question
    prompt: Prompt
    reference: Answer


async def _run(setup: Setup, max_tokens: int) -> Findings:
    context, questions, too_long = _plan(setup, max_tokens)
    options = EngineOptions(slots=CONCURRENCY, threads=setup.threads, context=context)
    engine = await Engine.start(setup.package, options, progress)
    try:
        check = _Check(engine, max_tokens, len(questions))
        for number, group in enumerate(_groups(questions)):
            variants = MIXED[number % _QUICK :: _QUICK] if setup.quick else MIXED
            await check.group(group, variants)
        exact = engine.exact
    finally:
        await engine.close()
    return _findings(check.ledger, exact, len(questions), too_long, max_tokens, context)


class _Check:
    """Runs the comparisons and keeps the ledger."""

    def __init__(self, engine: Engine, max_tokens: int, questions: int) -> None:
        self.ledger = Ledger()
        self._engine = engine
        self._max_tokens = max_tokens
        self._questions = questions
        self._done = 0
        self._started = time.monotonic()

    async def group(self, questions: Sequence[Question], variants: Sequence[Variant]) -> None:
        cases = []
        for question in questions:
            cases.append(await self._alone(question))
        for pack in packs(len(cases), variants):
            async with asyncio.TaskGroup() as running:
                for index, variant in pack:
                    running.create_task(self._compare(cases[index], variant, len(pack)))
        self._done += len(questions)
        self._progress()

    async def _alone(self, question: Question) -> Case:
        """The reference, and what runs one or two at a time."""
        prompt = first_prompt(self._engine, question.turns[0])
        case = Case(question, prompt, await self._answer(prompt, REFERENCE))
        self.ledger.reference()
        if len(question.turns) > 1:
            await self._continue(case)
        # Shorter prompts are not worth a copy.
        long = len(prompt.ids) > COPY_WORTHWHILE + 1
        await self._compare(case, WARM, 1, least_cached=int(long))
        await self._copy(case, len(prompt.ids) - 1 if long else 0)
        return case

    async def _continue(self, case: Case) -> None:
        """The next turn right behind the first, in the slot that holds it."""
        text = case.question.turns[1]
        prompt = next_prompt(self._engine, case.prompt, case.reference, text)
        if len(prompt.ids) >= self._engine.context_length:
            return
        most = max(1, self._max_tokens // 2)
        warm = await self._answer(prompt, CONTINUED, most)
        cold = Case(case.question, prompt, await self._answer(prompt, REFERENCE, most))
        self.ledger.reference()
        # The last token of an answer is not in its slot.
        kept = (*case.prompt.ids, *case.reference.ids[:-1])
        await self._judge(cold, CONTINUED, 1, warm, _first_difference(prompt.ids, kept))

    async def _copy(self, case: Case, least_cached: int) -> None:
        """A slot with the prompt that is busy, and others that have nothing of it."""
        await self._clear()
        ready = asyncio.Event()

        async def beside() -> None:
            await ready.wait()
            await self._compare(case, COPIED, 2, least_cached)

        async with asyncio.TaskGroup() as running:
            running.create_task(beside())
            request = BUSY.request(case.prompt.ids, self._max_tokens)
            answer = await generate(self._engine, request, ready.set)
        await self._judge(case, BUSY, 2, answer)

    async def _clear(self) -> None:
        """Leave no prompt in any slot."""
        request = GenerationRequest(prompt=(0, 0), max_tokens=1, reuse_prefix=False)
        async with asyncio.TaskGroup() as running:
            for _ in range(CONCURRENCY):
                running.create_task(generate(self._engine, request))

    async def _compare(
        self, case: Case, variant: Variant, concurrency: int, least_cached: int = 0
    ) -> None:
        answer = await self._answer(case.prompt, variant)
        await self._judge(case, variant, concurrency, answer, least_cached)

    async def _answer(self, prompt: Prompt, variant: Variant, most: int | None = None) -> Answer:
        request = variant.request(prompt.ids, most or self._max_tokens)
        return await generate(self._engine, request)

    async def _judge(
        self,
        case: Case,
        variant: Variant,
        concurrency: int,
        answer: Answer,
        least_cached: int = 0,
    ) -> None:
        """Enter `answer`; K/V of `least_cached` tokens of the prompt must have been found."""
        missed = answer.usage.cached_tokens < least_cached
        self.ledger.enter(variant.name, concurrency, answer, missed)
        expected = case.reference
        if (answer.ids, answer.reason) == (expected.ids, expected.reason):
            return
        position = _first_difference(answer.ids, expected.ids)
        tokens = (*case.prompt.ids, *expected.ids[:position])
        self.ledger.mismatches.append(
            Mismatch(
                question=case.question.id,
                variant=variant.name,
                concurrency=concurrency,
                position=position,
                expected=expected.ids[position : position + 4],
                found=answer.ids[position : position + 4],
                margin=await margin(self._engine, tokens),
            )
        )

    def _progress(self) -> None:
        spent = time.monotonic() - self._started
        left = spent / self._done * (self._questions - self._done)
        progress(
            f"exactness: {self._done} of {self._questions} prompts, {self.ledger.runs} runs,"
            f" {len(self.ledger.mismatches)} mismatches, {spent:.0f} s, about {left:.0f} s left"
        )


def _groups(questions: Sequence[Question]) -> Iterator[Sequence[Question]]:
    for start in range(0, len(questions), CONCURRENCY):
        yield questions[start : start + CONCURRENCY]


def _first_difference(first: Sequence[int], second: Sequence[int]) -> int:
    pairs = zip(first, second, strict=False)
    same = (index for index, (a, b) in enumerate(pairs) if a != b)
    return next(same, min(len(first), len(second)))


def _plan(setup: Setup, max_tokens: int) -> tuple[int, list[Question], list[str]]:
    """Tokens a slot needs, the prompts that fit, and the ids of those that do not."""
    texts = Texts(setup.package)
    most = setup.package.manifest.target.context_length
    needed, fitting, too_long = 0, [], []
    for question in setup.questions:
        if len(texts.ids(question.turns[0])) >= most:
            too_long.append(question.id)
            continue
        fitting.append(question)
        needed = max(needed, len(texts.ids(*question.turns[:2])) + 2 * max_tokens)
    if not fitting:
        raise UserError(
            f"every prompt is longer than the package's context of {most} tokens.",
            code="context_length_exceeded",
            param="prompts",
        )
    return min(most, -(-needed // 256) * 256), fitting, too_long


def _findings(
    ledger: Ledger, exact: bool, prompts: int, too_long: Sequence[str], most: int, context: int
) -> Findings:
    promises = [
        none_of("mismatches", len(ledger.mismatches)),
        none_of("probe not bit-identical at load", int(not exact)),
        none_of("warm and copied prefixes not found", ledger.prefixes_missed),
        Promise("draft tokens verified", float(ledger.drafted), ">=", 1.0),
    ]
    totals = Table(
        "Compared with the reference",
        ("prompts", "runs", "tokens", "mismatches"),
        [(str(prompts), str(ledger.runs), str(ledger.tokens), str(len(ledger.mismatches)))],
    )
    tables = [ledger.by_variant(), *ledger.shown_mismatches(), totals]
    if too_long:
        rows = [(question,) for question in too_long]
        tables.insert(0, Table("Left out, longer than the context", ("prompt",), rows))
    figures = {"prompts": prompts, "left_out": list(too_long), **ledger.figures()}
    settings = {"max_tokens": most, "context": context, "temperature": 0.0}
    return Findings(settings, figures, promises, tables)
