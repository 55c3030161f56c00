"""JSON by a schema: whether it is valid, the same whatever is drafted, and as fast as free text.

Each task is answered by its schema with speculation off and on, and in free text of as many tokens
with speculation on, within moments of one another. All answers are drawn with the same parameters.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import resources
from typing import Any

from bench.client import Client, WireAnswer, connected
from bench.gateway_process import running_gateway
from bench.report import Findings, Promise, Table, milliseconds, none_of, number
from bench.sampling import add_sampling_arguments, describe, sampling_of, settings_of
from bench.setup import Setup, progress
from models.errors import UserError
from models.sampling.parameters import Sampling

TASKS = "structured_tasks.json"

AS_FREE_TEXT = 1.0
"""Ratio of the times of an answer by a schema and of as much free text, over all tasks."""

_MOST_TOKENS = 320
_WAYS = ("schema", "off", "free")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--repeats",
        type=int,
        default=3,
        metavar="N",
        help="answers of each task in each way; default: 3, with --quick 1",
    )
    add_sampling_arguments(parser)


@dataclass(frozen=True, slots=True)
class Task:
    """What is asked, and the schema that the answer is to have."""

    name: str
    text: str
    schema: Mapping[str, Any]

    @property
    def form(self) -> dict[str, Any]:
        return {"type": "json_schema", "name": self.name, "schema": self.schema}


@dataclass(frozen=True, slots=True)
class Sample:
    """One answer: `ms` from its first token to its last, as its client saw it."""

    task: str
    way: str
    repeat: int
    ids: tuple[int, ...]
    ms: float
    rounds: int
    forced: int
    drafted: int
    accepted: int
    accept_ms: float
    valid: bool | None


def run(parsed: argparse.Namespace, setup: Setup) -> Findings:
    repeats = 1 if setup.quick else parsed.repeats
    if repeats < 1:
        raise UserError("--repeats must be at least 1.", code="usage")
    sampling = sampling_of(parsed)
    samples = asyncio.run(_measure(setup, sampling, repeats))
    described = {"repeats": repeats, "sampling": settings_of(sampling)}
    return evaluate(samples, described, describe(sampling))


def load_tasks() -> list[Task]:
    text = resources.files("bench").joinpath(TASKS).read_text(encoding="utf-8")
    return [Task(**task) for task in json.loads(text)]


async def _measure(setup: Setup, sampling: Sampling, repeats: int) -> list[Sample]:
    tasks, samples = load_tasks(), list[Sample]()
    async with running_gateway(setup) as gateway, connected(gateway.url) as client:
        # The first answers of a process, and the first of a schema, are slower.
        for task in tasks:
            await client.ask(task.text, max_tokens=16, sampling=sampling, form=task.form)
        for done, task in enumerate(tasks, start=1):
            for repeat in range(repeats):
                samples += await _task(client, task, sampling, repeat)
            progress(f"structured: {done} of {len(tasks)} tasks")
    return samples


async def _task(client: Client, task: Task, sampling: Sampling, repeat: int) -> list[Sample]:
    """The others in turns: what slows the machine down for a while slows all ways."""
    formed: dict[str, Any] = {"sampling": sampling, "provenance": True, "form": task.form}
    first = await client.ask(task.text, max_tokens=_MOST_TOKENS, **formed)
    free_fields: dict[str, Any] = {"sampling": sampling, "provenance": True, "ignore_eos": True}

    async def free() -> Sample:
        answer = await client.ask(task.text, max_tokens=first.tokens, **free_fields)
        return _sample(task, "free", repeat, answer)

    async def off() -> Sample:
        answer = await client.ask(
            task.text, max_tokens=_MOST_TOKENS, speculation={"off": True}, **formed
        )
        return _sample(task, "off", repeat, answer)

    others = [await free(), await off()] if repeat % 2 else [await off(), await free()]
    return [_sample(task, "schema", repeat, first), *others]


def _sample(task: Task, way: str, repeat: int, answer: WireAnswer) -> Sample:
    timings = answer.timings
    forced = timings["by_drafter"].get("grammar", {})
    assert answer.first is not None, "an answer has tokens"
    assert answer.last is not None, "an answer has tokens"
    return Sample(
        task=task.name,
        way=way,
        repeat=repeat,
        ids=answer.ids,
        ms=(answer.last - answer.first) * 1e3,
        rounds=timings["rounds"],
        forced=forced.get("draft_n_accepted", 0),
        drafted=timings["draft_n"],
        accepted=timings["draft_n_accepted"],
        accept_ms=timings["accept_ms"],
        valid=None if way == "free" else is_valid(answer.text, task.schema),
    )


def is_valid(text: str, schema: Mapping[str, Any]) -> bool:
    try:
        import jsonschema
    except ImportError:
        raise UserError("this suite needs jsonschema; install it.", code="usage") from None
    try:
        jsonschema.validate(json.loads(text), schema)
    except (ValueError, jsonschema.ValidationError):
        return False
    return True


def evaluate(samples: Sequence[Sample], described: Mapping[str, Any], sampling: str) -> Findings:
    """Figures and promises of `samples`."""
    totals = {way: sum(each.ms for each in samples if each.way == way) for way in _WAYS}
    invalid = sum(sample.valid is False for sample in samples)
    promises = [
        none_of("answers that are not valid by their schema", invalid),
        none_of("answers that differ with speculation off", len(different(samples))),
        Promise(
            "time by a schema / as much free text",
            totals["schema"] / totals["free"],
            "<=",
            AS_FREE_TEXT,
            "x",
        ),
    ]
    figures = {"totals_ms": totals, "samples": [asdict(sample) for sample in samples]}
    table = Table(f"By task. Sampling: {sampling}", _HEADER, _rows(samples))
    return Findings(described, figures, promises, [table])


def different(samples: Sequence[Sample]) -> list[str]:
    """Tasks whose answers by their schema are not the same token for token."""
    seen: dict[str, set[tuple[int, ...]]] = {}
    for sample in samples:
        if sample.way != "free":
            seen.setdefault(sample.task, set()).add(sample.ids)
    return [task for task, answers in seen.items() if len(answers) > 1]


_HEADER = (
    "task",
    "tokens",
    "forced",
    "rounds",
    "free's",
    "ms",
    "of free",
    "of off",
    "host ms a round",
)


def _rows(samples: Sequence[Sample]) -> list[tuple[str, ...]]:
    names = dict.fromkeys(sample.task for sample in samples)
    return [
        *(_row(name, [each for each in samples if each.task == name]) for name in names),
        _row("all", samples),
    ]


def _row(name: str, samples: Sequence[Sample]) -> tuple[str, ...]:
    by_way = {way: [each for each in samples if each.way == way] for way in _WAYS}
    schema = by_way["schema"]
    ms = {way: sum(each.ms for each in by_way[way]) for way in _WAYS}
    count, rounds = len(schema), sum(each.rounds for each in schema)
    return (
        name,
        number(sum(len(each.ids) for each in schema) / count, 0),
        number(sum(each.forced for each in schema) / count, 0),
        number(rounds / count, 0),
        number(sum(each.rounds for each in by_way["free"]) / count, 0),
        milliseconds(ms["schema"] / count),
        number(ms["schema"] / ms["free"]),
        number(ms["schema"] / ms["off"]),
        number(sum(each.accept_ms for each in schema) / max(1, rounds), 2),
    )
