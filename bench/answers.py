"""Answers of an engine in this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gateway.engine.conversation import Message, Prompt, Turn, build_prompt
from gateway.engine.engine import Engine
from gateway.engine.requests import (
    Delta,
    Finished,
    FinishReason,
    GenerationRequest,
    Timings,
    Usage,
)
from models.target import Row


@dataclass(frozen=True, slots=True)
class Answer:
    ids: tuple[int, ...]
    text: str
    reason: FinishReason
    usage: Usage
    timings: Timings


async def generate(
    engine: Engine, request: GenerationRequest, on_first: Callable[[], None] = lambda: None
) -> Answer:
    """The whole answer. `on_first` is called at the first event, when the prompt's K/V is there."""
    ids: list[int] = []
    text = ""
    async with engine.open(request) as generation:
        async for event in generation:
            on_first()
            if isinstance(event, Delta):
                ids += event.ids
                text += event.text
            else:
                return _answer(ids, text, event)
    raise RuntimeError("the generation ended without its last event")


def _answer(ids: Sequence[int], text: str, end: Finished) -> Answer:
    return Answer(tuple(ids), text, end.reason, end.usage, end.timings)


def first_prompt(engine: Engine, text: str) -> Prompt:
    return build_prompt(engine.tokenizer, engine.template, [Message("user", text)])


def next_prompt(engine: Engine, prompt: Prompt, answer: Answer, text: str) -> Prompt:
    """The conversation's next turn, whose prompt extends the last one and its answer."""
    turn: Turn = prompt.answered(answer.text, answer.ids)
    return build_prompt(engine.tokenizer, engine.template, [Message("user", text)], previous=turn)


async def margin(engine: Engine, tokens: tuple[int, ...]) -> float:
    """How far the target's first choice behind `tokens` is ahead of its second, in logits."""
    lease = await engine.acquire(GenerationRequest(prompt=tokens, reuse_prefix=False))
    try:
        row = Row(lease.slot, tokens, logits=1)
        verified = await engine.service.prefill(row, engine.next_order())
    finally:
        engine.release(lease.slot)
    first, second = verified.result.top_values[0, :2].tolist()
    return float(first - second)
