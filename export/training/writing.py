"""Many texts written at once: continuous batching on one packed graph.

A job is a prompt to be continued. Every run takes a chunk of the prompt of rows that still read and
one token of those that write; a row whose job has ended takes the next job at once. On the CPU the
rows of a run do not touch one another, and noise is a function of the job's seed and the position:
what a job writes depends neither on what is written beside it nor on the order of the jobs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
import onnx
from numpy.typing import NDArray

from export.features import without_features
from export.rows import derive_rows
from export.writer import link_or_copy
from models.memory import memory_need, require_memory
from models.package import Package
from models.providers import select_provider
from models.sampling.noise import Purpose as Noise
from models.sampling.noise import exponentials
from models.sampling.parameters import Sampling
from models.slots import Slot
from models.target import Row, RowResult, Target

CHUNK = 64
"""Tokens of a prompt that a run reads of one row: more would hold up the rows that write."""

Purpose = TypeVar("Purpose")


@dataclass(frozen=True, slots=True)
class Job(Generic[Purpose]):
    """A prompt to be continued by at most `most` tokens; `purpose` is the caller's own.

    Of `sampling`, `temperature`, `top_k`, `top_p` and `seed` count.
    """

    prompt: tuple[int, ...]
    most: int
    sampling: Sampling
    purpose: Purpose

    def __post_init__(self) -> None:
        assert self.prompt, "the first token follows another"
        assert self.most > 0, "at least one token is written"


@dataclass(frozen=True, slots=True)
class Written(Generic[Purpose]):
    """What a job wrote; the last id is one that ends texts unless it was cut."""

    job: Job[Purpose]
    ids: tuple[int, ...]


def load_packed_target(
    package: Package, rows: int, context: int, scratch: Path, threads: int | None
) -> Target:
    """The target of `package` for up to `rows` rows, without features. Its graph is derived in
    `scratch`, which is not needed any more afterwards.

    Raises `UserError` where the slots of a `Writer` with this context would not fit into memory.
    """
    spec = package.manifest.target
    name = f"target.r{rows}.onnx"
    packed = dataclasses.replace(
        spec,
        graphs={str(rows): name},
        tree_graphs={},
        compact_graph=None,
        features={},
        tap_layers=(),
    )
    manifest = dataclasses.replace(package.manifest, target=packed, drafters=())
    derived = Package(path=scratch, manifest=manifest)
    require_memory(memory_need(derived, rows, context, rows * CHUNK))
    featured = onnx.load(str(package.file(spec.graphs["1"])), load_external_data=False)
    single = without_features(featured)
    onnx.save(derive_rows(single, rows) if rows > 1 else single, str(scratch / name))
    link_or_copy(package.file(spec.weights), scratch / spec.weights)
    return Target(derived, select_provider("auto", spec.device), threads)


@dataclass(slots=True)
class _Writing(Generic[Purpose]):
    """A job in its slot: `read` tokens of the prompt have run, `ids` are written."""

    job: Job[Purpose]
    slot: Slot
    read: int = 0
    ids: list[int] = field(default_factory=list)

    def row(self) -> Row:
        prompt = self.job.prompt
        if self.read == len(prompt):
            return Row(self.slot, (self.ids[-1],), 1)
        chunk = prompt[self.read : self.read + CHUNK]
        return Row(self.slot, chunk, int(self.read + len(chunk) == len(prompt)))

    def commit(self, row: Row) -> None:
        self.slot.commit(row.tokens)
        self.read = min(self.read + len(row.tokens), len(self.job.prompt))


class Writer:
    """Writes jobs with a target, a row each.

    A job's prompt and what it writes must fit into `context`, as `room` says.
    """

    def __init__(self, target: Target, context: int, endings: Collection[int]) -> None:
        self._target = target
        self._slots = target.make_slots(target.most_rows, context)
        self._endings = frozenset(endings)
        self.context = context
        self.read_tokens = 0
        self.written_tokens = 0

    def room(self, job: Job[Purpose]) -> int:
        """Tokens to spare."""
        return self.context - len(job.prompt) - job.most

    def write(self, jobs: Iterable[Job[Purpose]]) -> Iterator[Written[Purpose]]:
        """Results in the order in which they end.

        A job is taken from `jobs` when a row is free for it, and after all results of the runs
        before were taken from here: later jobs may depend on earlier results.
        """
        queue = iter(jobs)
        free = list(self._slots)
        busy: list[_Writing[Purpose]] = []
        while True:
            while free and (job := next(queue, None)) is not None:
                busy.append(self._begin(job, free))
            if not busy:
                return
            self._run(busy)
            ended = [writing for writing in busy if self._has_ended(writing)]
            busy = [writing for writing in busy if not self._has_ended(writing)]
            free += [writing.slot for writing in ended]
            for writing in ended:
                yield Written(writing.job, tuple(writing.ids))

    def _begin(self, job: Job[Purpose], free: list[Slot]) -> _Writing[Purpose]:
        """Where most of the prompt was read before: other questions about the same text."""
        assert self.room(job) >= 0, "the job fits into a slot"
        # The last token is always read: its logits are wanted.
        known = np.array(job.prompt[:-1], dtype=np.int64)
        slot = max(free, key=lambda slot: slot.common_prefix(known))
        free.remove(slot)
        slot.truncate(slot.common_prefix(known))
        return _Writing(job, slot, slot.length)

    def _run(self, busy: Sequence[_Writing[Purpose]]) -> None:
        rows = [writing.row() for writing in busy]
        results = self._target.run(rows)
        for writing, row in zip(busy, rows, strict=True):
            writing.commit(row)
        self.read_tokens += sum(len(row.tokens) for row in rows)
        wanted = [
            (writing, result)
            for writing, row, result in zip(busy, rows, results, strict=True)
            if row.logits
        ]
        for (writing, _), token in zip(wanted, _next_tokens(wanted), strict=True):
            writing.ids.append(token)
        self.written_tokens += len(wanted)

    def _has_ended(self, writing: _Writing[Purpose]) -> bool:
        ids = writing.ids
        return bool(ids) and (ids[-1] in self._endings or len(ids) == writing.job.most)


def _next_tokens(wanted: Sequence[tuple[_Writing[Purpose], RowResult]]) -> list[int]:
    if not wanted:
        return []
    ids = np.concatenate([result.top_ids for _, result in wanted])
    values = np.concatenate([result.top_values for _, result in wanted])
    samplings = [writing.job.sampling for writing, _ in wanted]
    noise = np.ones(ids.shape)
    for row, (writing, _) in enumerate(wanted):
        sampling = writing.job.sampling
        if not sampling.greedy:
            assert sampling.seed is not None, "jobs are drawn with a seed"
            noise[row] = exponentials(sampling.seed, writing.slot.length, Noise.TOKEN, ids[row])
    return choose(values, ids, samplings, noise)


def choose(
    values: NDArray[np.float32],
    ids: NDArray[np.int64],
    samplings: Sequence[Sampling],
    noise: NDArray[np.float64],
) -> list[int]:
    """One id a row from its K largest logits [B, K], falling, by the Gumbel-max trick.

    `noise` [B, K] are standard exponential variates. The K stand for the whole row: what lies
    outside is never drawn.
    """
    width = values.shape[1]
    greedy = np.array([sampling.greedy for sampling in samplings])
    heat = np.array([1.0 if s.greedy else s.temperature for s in samplings])
    top_k = np.array([min(s.top_k or width, width) for s in samplings])
    top_p = np.array([s.top_p for s in samplings])
    weights = np.exp((values - values[:, :1]).astype(np.float64) / heat[:, None])
    weights *= np.arange(width) < top_k[:, None]
    before = np.cumsum(weights, axis=1) - weights
    weights *= before < np.maximum(top_p, 1e-9)[:, None] * weights.sum(axis=1, keepdims=True)
    with np.errstate(divide="ignore"):
        drawn = np.where(weights > 0, noise / weights, np.inf).argmin(axis=1)
    place = np.where(greedy, 0, drawn)
    chosen: list[int] = ids[np.arange(len(place)), place].tolist()
    return chosen
