"""Text written by the model itself: what quantisation is calibrated on and judged by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from export.quantization.context import CalibrationContext
from export.runner import GraphRunner, RowStep


@dataclass(frozen=True, slots=True)
class Answer:
    """Ids of a prompt and of what the model answered."""

    prompt: tuple[int, ...]
    ids: tuple[int, ...]

    @property
    def all_ids(self) -> tuple[int, ...]:
        return self.prompt + self.ids

    @property
    def predicting(self) -> range:
        """Positions of `all_ids` whose logits predict `ids`."""
        return range(len(self.prompt) - 1, len(self.prompt) + len(self.ids) - 1)


@dataclass(frozen=True, slots=True)
class Sampling:
    """`temperature` 0 is greedy."""

    max_tokens: int
    temperature: float = 0.0


def prompt_ids(context: CalibrationContext, questions: Sequence[str]) -> list[tuple[int, ...]]:
    """Questions through the chat template; without one, the start of free continuations."""
    if context.render is None:
        start = 0 if context.bos_id is None else context.bos_id
        return [(start, *context.encode(question)) for question in questions]
    return [
        tuple(context.encode(context.render([{"role": "user", "content": question}])))
        for question in questions
    ]


def write_answers(
    runner: GraphRunner,
    prompts: Sequence[tuple[int, ...]],
    sampling: Sampling,
    context: CalibrationContext,
) -> list[Answer]:
    """Answer all prompts, `runner.rows` at a time."""
    rng = np.random.default_rng(context.seed)
    answers: list[Answer] = []
    for begin in range(0, len(prompts), runner.rows):
        group = list(prompts[begin : begin + runner.rows])
        padded = group + [group[0]] * (runner.rows - len(group))
        answers += _write_together(runner, padded, sampling, context.eos_ids, rng)[: len(group)]
    return answers


def _write_together(
    runner: GraphRunner,
    prompts: Sequence[tuple[int, ...]],
    sampling: Sampling,
    eos_ids: Sequence[int],
    rng: np.random.Generator,
) -> list[Answer]:
    answers = [Answer(prompt, ()) for prompt in prompts]
    steps = [RowStep(prompt) for prompt in prompts]
    for _ in range(sampling.max_tokens):
        last = np.cumsum([len(step.tokens) for step in steps]) - 1
        logits = runner.run(steps, last.tolist())["logits"].astype(np.float32)
        chosen = _choose(logits, sampling.temperature, rng)
        answers = [
            answer if _ended(answer, eos_ids) else replace(answer, ids=(*answer.ids, token))
            for answer, token in zip(answers, chosen, strict=True)
        ]
        if all(_ended(answer, eos_ids) for answer in answers):
            break
        # A row that has ended goes on writing what nobody reads.
        steps = [
            RowStep((token,), step.past + len(step.tokens))
            for step, token in zip(steps, chosen, strict=True)
        ]
    return answers


def _ended(answer: Answer, eos_ids: Sequence[int]) -> bool:
    return bool(answer.ids) and answer.ids[-1] in eos_ids


def _choose(logits: NDArray[np.float32], temperature: float, rng: np.random.Generator) -> list[int]:
    if temperature > 0:
        # The Gumbel-max trick: a sample is the argmax of logits plus noise.
        noise = rng.gumbel(size=logits.shape).astype(np.float32)
        logits = logits / np.float32(temperature) + noise
    return [int(token) for token in logits.argmax(-1)]
