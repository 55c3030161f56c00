"""Log-probabilities of the answer's and the prompt's tokens against those of transformers.

Every prompt is answered greedily and sampled, both with speculation, and its own tokens are scored
too. The reference is teacher-forced over the same tokens, in one run.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.answers import Answer, first_prompt, generate
from bench.report import Findings, Promise, Table, number
from bench.setup import Setup, progress
from bench.texts import Texts
from bench.transformers_reference import TransformersReference, find_reference
from export.sources import DEMO_CHECKPOINT
from gateway.engine.engine import Engine
from gateway.engine.options import EngineOptions
from gateway.engine.requests import GenerationRequest, Speculation, TokenLogprob
from models.errors import UserError
from models.package import TargetSpec
from models.sampling.parameters import Sampling

CLOSEST = 1e-3
"""Nats between the two, at most, in fp32."""

TOP = 5
LONGEST_PROMPT = 1024

Asked = dict[str, Sampling]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--reference-checkpoint",
        type=Path,
        metavar="PATH",
        help="the checkpoint that the package was exported from: a directory or a .gguf file;"
        " default: the demo's, from the cache",
    )
    parser.add_argument(
        "--max-tokens", type=int, default=48, metavar="N", help="of each answer; default: 48"
    )
    parser.add_argument(
        "--seed", type=int, default=7, metavar="S", help="of the sampled answers; default: 7"
    )


def run(parsed: argparse.Namespace, setup: Setup) -> Findings:
    if parsed.max_tokens < 1:
        raise UserError("--max-tokens must be at least 1.", code="usage")
    target = setup.package.manifest.target
    source = find_reference(parsed.reference_checkpoint, target)
    if target.weight_type != "fp32":
        progress(f"logprobs: {_not_fp32(target)}")
    reference = TransformersReference(source, setup.threads)
    asked = {
        "greedy": Sampling(),
        "temperature 1": Sampling(temperature=1.0, seed=parsed.seed),
    }
    differences = asyncio.run(_compare(setup, reference, asked, parsed.max_tokens))
    settings = {
        "max_tokens": parsed.max_tokens,
        "seed": parsed.seed,
        "top_logprobs": TOP,
        "reference_checkpoint": str(source.directory / (source.gguf or "")),
    }
    return _findings(setup, differences, settings)


@dataclass(slots=True)
class Difference:
    """Between the two on `tokens` of one kind: the largest, and the mean of all, in nats.

    `top_largest` is that of the most likely tokens' log-probabilities, rank by rank.
    """

    kind: str
    tokens: int = 0
    largest: float = 0.0
    total: float = 0.0
    top_largest: float = 0.0

    @property
    def mean(self) -> float | None:
        return self.total / self.tokens if self.tokens else None

    def enter(self, found: Sequence[TokenLogprob], expected: NDArray[np.float64]) -> None:
        """`expected` [n, V] are the reference's rows for `found` [n]."""
        assert len(found) == len(expected), "a row for every token"
        for item, row in zip(found, expected, strict=True):
            apart = abs(item.logprob - float(row[item.id]))
            self.tokens += 1
            self.total += apart
            self.largest = max(self.largest, apart)
            best = np.sort(np.partition(row, -TOP)[-TOP:])[::-1]
            for rank, (token, logprob) in enumerate(item.top):
                own, ranked = float(row[token]), float(best[rank])
                self.top_largest = max(self.top_largest, abs(logprob - own), abs(logprob - ranked))


async def _compare(
    setup: Setup, reference: TransformersReference, asked: Asked, max_tokens: int
) -> list[Difference]:
    prompts, context = _plan(setup, max_tokens)
    options = EngineOptions(slots=1, threads=setup.threads, context=context)
    engine = await Engine.start(setup.package, options, progress)
    vocab_size = setup.package.manifest.target.vocab_size
    of_prompt, of_answer = Difference("prompt"), {name: Difference(name) for name in asked}
    try:
        for done, text in enumerate(prompts, start=1):
            prompt = first_prompt(engine, text).ids
            for index, (name, sampling) in enumerate(asked.items()):
                answer = await _answer(engine, prompt, sampling, max_tokens)
                ids = (*prompt, *answer.ids)
                expected = await asyncio.to_thread(reference.logprobs, ids, vocab_size)
                before = len(prompt) - 1
                of_answer[name].enter(answer.logprobs, expected[before:])
                if index == 0:
                    scored = [item for item in answer.prompt_logprobs if item is not None]
                    of_prompt.enter(scored, expected[:before])
            progress(f"logprobs: {done} of {len(prompts)} prompts")
    finally:
        await engine.close()
    return [of_prompt, *of_answer.values()]


def _plan(setup: Setup, max_tokens: int) -> tuple[list[str], int]:
    """The prompts that fit, and the tokens that a slot needs."""
    texts = Texts(setup.package)
    most = min(LONGEST_PROMPT, setup.package.manifest.target.context_length - max_tokens)
    lengths = {question.turns[0]: len(texts.ids(question.turns[0])) for question in setup.questions}
    fitting = [text for text, length in lengths.items() if length <= most]
    if not fitting:
        raise UserError(
            f"no prompt has at most {most} tokens to compare on.", code="usage", param="prompts"
        )
    context = max(16, max(lengths[text] for text in fitting) + max_tokens)
    return fitting[:2] if setup.quick else fitting, context


async def _answer(
    engine: Engine, prompt: tuple[int, ...], sampling: Sampling, max_tokens: int
) -> Answer:
    request = GenerationRequest(
        prompt,
        max_tokens=max_tokens,
        sampling=sampling,
        top_logprobs=TOP,
        prompt_logprobs=True,
        speculation=Speculation("ngram", "fixed", 4),
    )
    return await generate(engine, request)


def _not_fp32(target: TargetSpec) -> str:
    source = "--demo" if target.checkpoint == DEMO_CHECKPOINT else "--target CHECKPOINT"
    return (
        f"the package is {target.weight_type}, and {CLOSEST} nats are promised of fp32 on the CPU:"
        f" this run only shows the figures. To check the promise, `python -m export {source}"
        " --dtype fp32 --out DIR`, then `python -m bench logprobs --package DIR`."
    )


def _findings(
    setup: Setup, differences: Sequence[Difference], settings: dict[str, object]
) -> Findings:
    target = setup.package.manifest.target
    applies = target.weight_type == "fp32"
    note = "" if applies else f"promised of fp32; this package is {target.weight_type}"
    promises = [
        Promise(
            "largest difference of a log-probability",
            max(max(item.largest, item.top_largest) for item in differences),
            "<=",
            CLOSEST,
            "nats",
            note,
            applies,
        ),
        *(
            Promise(f"tokens compared, {item.kind}", float(item.tokens), ">=", 1.0)
            for item in differences
        ),
    ]
    rows = [
        (
            item.kind,
            str(item.tokens),
            number(item.largest, 7),
            number(item.mean, 7),
            number(item.top_largest, 7),
        )
        for item in differences
    ]
    header = ("tokens of", "", "largest", "mean", f"largest of the top {TOP}")
    figures = {"differences": [{**asdict(item), "mean": item.mean} for item in differences]}
    table = Table("Log-probabilities apart from transformers, nats", header, rows)
    return Findings(settings, figures, promises, [table])
