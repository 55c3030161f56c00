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
    PromptScored,
    Timings,
    TokenLogprob,
    Usage,
)


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer. The log-probabilities are empty unless they were asked for."""

    ids: tuple[int, ...]
    text: str
    reason: FinishReason
    usage: Usage
    timings: Timings
    logprobs: tuple[TokenLogprob, ...] = ()
    prompt_logprobs: tuple[TokenLogprob | None, ...] = ()


async def generate(
    engine: Engine, request: GenerationRequest, on_first: Callable[[], None] = lambda: None
) -> Answer:
    """The whole answer. `on_first` is called at the first event, when the prompt's K/V is there."""
    prompt_logprobs: tuple[TokenLogprob | None, ...] = ()
    deltas: list[Delta] = []
    async with engine.open(request) as generation:
        async for event in generation:
            on_first()
            if isinstance(event, PromptScored):
                prompt_logprobs = event.logprobs
            elif isinstance(event, Delta):
                deltas.append(event)
            else:
                return _answer(deltas, prompt_logprobs, event)
    raise RuntimeError("the generation ended without its last event")


def _answer(
    deltas: Sequence[Delta], prompt_logprobs: tuple[TokenLogprob | None, ...], end: Finished
) -> Answer:
    return Answer(
        ids=tuple(token for delta in deltas for token in delta.ids),
        text="".join(delta.text for delta in deltas),
        reason=end.reason,
        usage=end.usage,
        timings=end.timings,
        logprobs=tuple(item for delta in deltas for item in delta.logprobs),
        prompt_logprobs=prompt_logprobs,
    )


def first_prompt(engine: Engine, text: str) -> Prompt:
    return build_prompt(engine.tokenizer, engine.template, [Message("user", text)])


def next_prompt(engine: Engine, prompt: Prompt, answer: Answer, text: str) -> Prompt:
    """The conversation's next turn, whose prompt extends the last one and its answer."""
    turn: Turn = prompt.answered(answer.text, answer.ids)
    return build_prompt(engine.tokenizer, engine.template, [Message("user", text)], previous=turn)
