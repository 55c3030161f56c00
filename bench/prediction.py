"""Predicted outputs: the time of answers that were predicted, rightly, nearly or wrongly.

Each task is answered with speculation off, by a drafter alone (by default n-grams of the request's
own text), and by the same drafter beside predictions of every quality, within moments of one
another. In edits the text to change stands in the prompt as well, where n-grams find it; in
questions it does not. A small model edits badly, so that the given text is often no prediction of
what it says: what a good one is worth is measured with the model's own answer, whole and with words
altered, as when an answer is to be had again.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources

from bench.client import Client, connected
from bench.gateway_process import running_gateway
from bench.prediction_figures import Kind, Sample, Way, evaluate
from bench.report import Findings
from bench.sampling import add_sampling_arguments, describe, sampling_of, settings_of
from bench.setup import Setup, progress
from models.errors import UserError
from models.sampling.parameters import Sampling

TASKS = "prediction_tasks.json"
_MOST_TOKENS = 256
_EVERY = 15
"""One word of so many is altered."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--repeats",
        type=int,
        default=5,
        metavar="N",
        help="answers of each task in each way; default: 5, with --quick 1",
    )
    parser.add_argument(
        "--drafter",
        default="ngram",
        metavar="NAME",
        help="what drafts beside the prediction, and without it; default: ngram",
    )
    add_sampling_arguments(parser)


@dataclass(frozen=True, slots=True)
class Task:
    """What is asked: to change `text`, or a question that has none."""

    name: str
    ask: str
    text: str = ""

    @property
    def kind(self) -> Kind:
        return "edit" if self.text else "question"

    @property
    def prompt(self) -> str:
        return f"{self.ask}\n\n{self.text}" if self.text else self.ask


def run(parsed: argparse.Namespace, setup: Setup) -> Findings:
    repeats = 1 if setup.quick else parsed.repeats
    if repeats < 1:
        raise UserError("--repeats must be at least 1.", code="usage")
    sampling = sampling_of(parsed)
    samples = asyncio.run(_measure(setup, sampling, repeats, parsed.drafter))
    described = {
        "repeats": repeats,
        "drafter": parsed.drafter,
        "altered": f"1 word of {_EVERY}",
        "sampling": settings_of(sampling),
    }
    return evaluate(samples, described, f"{describe(sampling)}; drafter: {parsed.drafter}")


def load_tasks() -> list[Task]:
    text = resources.files("bench").joinpath(TASKS).read_text(encoding="utf-8")
    return [Task(**task) for task in json.loads(text)]


def altered(text: str, every: int = _EVERY) -> str:
    """In turns a word is replaced by an earlier one, left out, and said twice; blanks stay."""
    pieces = re.split(r"(\s+)", text)
    words = pieces[::2]
    for turn, place in enumerate(range(every - 1, len(words), every)):
        word, other = words[place], words[place - every // 2]
        pieces[2 * place] = (other if other != word else f"{word}s", "", f"{word} {word}")[turn % 3]
    return "".join(pieces)


async def _measure(setup: Setup, sampling: Sampling, repeats: int, drafter: str) -> list[Sample]:
    tasks, samples = load_tasks(), list[Sample]()
    async with running_gateway(setup) as gateway, connected(gateway.url) as client:
        own = [await _own_answer(client, task, sampling) for task in tasks]
        for index, task in enumerate(tasks):
            predictions = predictions_of(task, own[index], own[index - 1])
            for repeat in range(repeats):
                samples += await _task(client, task, predictions, sampling, repeat, drafter)
            progress(f"prediction: {index + 1} of {len(tasks)} tasks")
    return samples


async def _own_answer(client: Client, task: Task, sampling: Sampling) -> str:
    """Also the first answer of the task, which is slower."""
    answer = await client.ask(
        task.prompt, max_tokens=_MOST_TOKENS, sampling=sampling, speculation={"off": True}
    )
    return answer.text


def predictions_of(task: Task, own: str, other: str) -> dict[Way, str | None]:
    """By way; `own` is the model's answer, `other` that to another task."""
    given: dict[Way, str | None] = {"given": task.text} if task.text else {}
    return {
        "off": None,
        "drafter": None,
        **given,
        "own": own,
        "altered": altered(own),
        "wrong": other,
    }


async def _task(
    client: Client,
    task: Task,
    predictions: Mapping[Way, str | None],
    sampling: Sampling,
    repeat: int,
    drafter: str,
) -> list[Sample]:
    """Another way first each time: what slows the machine down for a while slows all of them."""
    ways = list(predictions)
    first = repeat % len(ways)
    samples = []
    for way in (*ways[first:], *ways[:first]):
        speculation = {"off": True} if way == "off" else {"drafter": drafter}
        answer = await client.ask(
            task.prompt,
            max_tokens=_MOST_TOKENS,
            sampling=sampling,
            provenance=True,
            speculation=speculation,
            prediction=predictions[way],
        )
        part = answer.timings["by_drafter"].get("prediction", {})
        assert answer.first is not None, "an answer has tokens"
        assert answer.last is not None, "an answer has tokens"
        samples.append(
            Sample(
                task=task.name,
                kind=task.kind,
                way=way,
                repeat=repeat,
                ids=answer.ids,
                ms=(answer.last - answer.first) * 1e3,
                rounds=answer.timings["rounds"],
                verified=part.get("draft_n", 0),
                accepted=part.get("draft_n_accepted", 0),
            )
        )
    return samples
