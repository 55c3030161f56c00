"""Answers compared with their references: alone, one after another, two and four at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from bench.answers import Answer, first_prompt, generate, next_prompt
from bench.drafter_settings import NGRAM
from bench.ledger import Ledger, Mismatch
from bench.margins import Margins
from bench.prompts import Question
from bench.variants import BUSY, CONCURRENCY, CONTINUED, COPIED, REFERENCE, WARM, Variant, packs
from gateway.engine.conversation import Prompt
from gateway.engine.engine import Engine
from gateway.engine.requests import GenerationRequest
from models.sampling.parameters import Sampling
from models.slots import COPY_WORTHWHILE


@dataclass(frozen=True, slots=True)
class Case:
    """A prompt, and the answer that everything must agree with."""

    question: Question
    prompt: Prompt
    reference: Answer


@dataclass(frozen=True, slots=True)
class _Difference:
    """An answer that left its reference at `position`, to be looked into when nothing runs."""

    ledger: Ledger
    case: Case
    variant: Variant
    concurrency: int
    found: Answer
    position: int


class Comparison:
    """Runs requests on an engine and enters into ledgers how they compare.

    What differs is looked into by `settle`, which needs the engine to itself.
    """

    def __init__(self, engine: Engine, sampling: Sampling, max_tokens: int) -> None:
        self._engine = engine
        self._sampling = sampling
        self._max_tokens = max_tokens
        self._margins = Margins(engine, sampling)
        self._differences: list[_Difference] = []

    async def alone(
        self, question: Question, ledger: Ledger, drafters: Sequence[str] = (NGRAM,)
    ) -> Case:
        """The reference, and what runs one or two at a time, with each of `drafters`."""
        prompt = first_prompt(self._engine, question.turns[0])
        case = Case(question, prompt, await self._answer(prompt, REFERENCE))
        ledger.reference()
        # Shorter prompts are not worth a copy.
        long = len(prompt.ids) > COPY_WORTHWHILE + 1
        for drafter in drafters:
            if len(question.turns) > 1:
                await self._continue(case, CONTINUED.by(drafter), ledger)
            await self._compare(case, WARM.by(drafter), 1, ledger, least_cached=int(long))
            copied = len(prompt.ids) - 1 if long else 0
            await self._copy(case, BUSY.by(drafter), COPIED.by(drafter), copied, ledger)
        return case

    async def mixed(
        self, cases: Sequence[Case], variants: Sequence[Variant], ledger: Ledger
    ) -> None:
        """Every variant of every case, four at a time."""
        for pack in packs(len(cases), variants):
            await self.together([(cases[index], variant, ledger) for index, variant in pack])

    async def together(self, members: Sequence[tuple[Case, Variant, Ledger]]) -> None:
        async with asyncio.TaskGroup() as running:
            for case, variant, ledger in members:
                running.create_task(self._compare(case, variant, len(members), ledger))

    async def settle(self) -> None:
        """Say of everything that differed how far the reference's token was ahead."""
        for item in self._differences:
            item.ledger.mismatches.append(await self._mismatch(item))
        self._differences.clear()
        self._margins.forget()

    async def _mismatch(self, item: _Difference) -> Mismatch:
        expected, found = item.case.reference.ids, item.found.ids
        position = item.position
        margin = await self._margins.between(
            item.case.prompt.ids,
            expected[:position],
            next(iter(expected[position:]), None),
            next(iter(found[position:]), None),
        )
        return Mismatch(
            question=item.case.question.id,
            variant=item.variant.name,
            concurrency=item.concurrency,
            position=position,
            expected=expected[position : position + 4],
            found=found[position : position + 4],
            margin=margin,
        )

    async def _continue(self, case: Case, variant: Variant, ledger: Ledger) -> None:
        """The next turn right behind the first, in the slot that holds it."""
        text = case.question.turns[1]
        prompt = next_prompt(self._engine, case.prompt, case.reference, text)
        if len(prompt.ids) >= self._engine.context_length:
            return
        most = max(1, self._max_tokens // 2)
        warm = await self._answer(prompt, variant, most)
        cold = Case(case.question, prompt, await self._answer(prompt, REFERENCE, most))
        ledger.reference()
        # The last token of an answer is not in its slot.
        kept = (*case.prompt.ids, *case.reference.ids[:-1])
        least_cached = first_difference(prompt.ids, kept)
        self._judge(cold, variant, 1, warm, ledger, least_cached)

    async def _copy(
        self, case: Case, busy: Variant, copied: Variant, least_cached: int, ledger: Ledger
    ) -> None:
        """A slot with the prompt that is busy, and others that have nothing of it."""
        await self._clear()
        ready = asyncio.Event()

        async def beside() -> None:
            await ready.wait()
            await self._compare(case, copied, 2, ledger, least_cached)

        async with asyncio.TaskGroup() as running:
            running.create_task(beside())
            request = busy.request(case.prompt.ids, self._max_tokens, self._sampling)
            answer = await generate(self._engine, request, ready.set)
        self._judge(case, busy, 2, answer, ledger)

    async def _clear(self) -> None:
        """Leave no prompt in any slot."""
        request = GenerationRequest(prompt=(0, 0), max_tokens=1, reuse_prefix=False)
        async with asyncio.TaskGroup() as running:
            for _ in range(CONCURRENCY):
                running.create_task(generate(self._engine, request))

    async def _compare(
        self,
        case: Case,
        variant: Variant,
        concurrency: int,
        ledger: Ledger,
        least_cached: int = 0,
    ) -> None:
        answer = await self._answer(case.prompt, variant)
        self._judge(case, variant, concurrency, answer, ledger, least_cached)

    async def _answer(self, prompt: Prompt, variant: Variant, most: int | None = None) -> Answer:
        request = variant.request(prompt.ids, most or self._max_tokens, self._sampling)
        return await generate(self._engine, request)

    def _judge(
        self,
        case: Case,
        variant: Variant,
        concurrency: int,
        answer: Answer,
        ledger: Ledger,
        least_cached: int = 0,
    ) -> None:
        """Enter `answer`; K/V of `least_cached` tokens of the prompt must have been found."""
        missed = answer.usage.cached_tokens < least_cached
        ledger.enter(variant.name, concurrency, answer, missed)
        expected = case.reference
        if (answer.ids, answer.reason) != (expected.ids, expected.reason):
            position = first_difference(answer.ids, expected.ids)
            self._differences.append(
                _Difference(ledger, case, variant, concurrency, answer, position)
            )


def first_difference(first: Sequence[int], second: Sequence[int]) -> int:
    pairs = zip(first, second, strict=False)
    same = (index for index, (a, b) in enumerate(pairs) if a != b)
    return next(same, min(len(first), len(second)))
