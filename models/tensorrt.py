"""TensorRT: an engine for every shape, built once and kept, and what it did not take.

An engine is built for shapes. For runs of fixed shape there is a session each, whose profile is
that shape; runs of other widths share one whose profile is a range. Building takes minutes, so
engines and the timings behind them are kept in a directory: the next start reads them.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from models.errors import UserError
from models.memory import PAD_TOKENS
from models.package import KEPT, Package, TargetSpec
from models.providers import Provider
from models.rows import LEAST_WIDTH, Layout
from models.runs import Runs
from models.session import Session
from models.slots import Slot

log = logging.getLogger(__name__)

WIDEST = 1024
"""Tokens of a row in the widest run that engines are built for."""

_USUAL = 256
_BROKEN = re.compile(
    r"TensorRT EP could not (?:deserialize engine from cache|create timing cache): (.+)"
)
"""What its execution provider says of a kept file, and of no other."""

Shape = tuple[int, ...]


class EngineSessions(Mapping[int, Session]):
    """The sessions of a target by row count, made when they are first wanted.

    As a mapping those for runs of any width up to `WIDEST`.
    """

    def __init__(
        self, package: Package, provider: Provider, threads: int | None, runs: Runs | None = None
    ) -> None:
        self._package = package
        self._spec = package.manifest.target
        self._provider = provider
        self._threads = threads
        self._runs = runs
        self._wide: dict[int, Session] = {}
        self._fixed: dict[tuple[int, int, Shape], Session] = {}

    def __getitem__(self, rows: int) -> Session:
        if rows not in self._package.row_counts:
            raise KeyError(rows)
        if rows not in self._wide:
            capacity = self._spec.context_length + PAD_TOKENS
            usual, most = (
                shapes(self._spec, rows, width, [capacity] * rows)
                for width in (min(_USUAL, self._spec.context_length), self._most)
            )
            self._wide[rows] = self._load(rows, profile(least(self._spec, rows), usual, most))
        return self._wide[rows]

    def __iter__(self) -> Iterator[int]:
        return iter(self._package.row_counts)

    def __len__(self) -> int:
        return len(self._package.row_counts)

    @property
    def loaded(self) -> list[Session]:
        return [*self._wide.values(), *self._fixed.values()]

    def fixed(self, width: int, slots: Sequence[Slot]) -> Session:
        """For runs of `width` tokens in each of `slots`."""
        capacities = tuple(slot.context + PAD_TOKENS for slot in slots)
        key = (len(slots), width, capacities)
        if key not in self._fixed:
            only = shapes(self._spec, len(slots), width, capacities)
            self._fixed[key] = self._load(len(slots), profile(only, only, only))
        return self._fixed[key]

    @property
    def _most(self) -> int:
        # A width may be padded to an even one beyond the context, where the slots have room.
        return min(WIDEST, self._spec.context_length + PAD_TOKENS)

    def _load(self, rows: int, options: Mapping[str, str]) -> Session:
        graph = self._package.file(self._spec.graphs[str(rows)])

        def load() -> Session:
            return Session(graph, self._provider, self._threads, runs=self._runs, options=options)

        try:
            return load()
        except UserError as error:
            if not forget_broken(error.message):
                raise
            return load()


def forget_broken(problem: str) -> bool:
    """Take away the kept file that ONNX Runtime says it cannot read; whether there was one.

    It writes such files in place: one is cut off where the process was killed meanwhile, or the
    disk was full.
    """
    found = _BROKEN.search(problem)
    if found is None or not (path := Path(found[1].strip())).is_file():
        return False
    log.warning("%s is broken and will be made again", path)
    try:
        path.unlink()
    except OSError as error:
        log.warning("%s cannot be taken away: %s", path, error.strerror or error)
        return False
    return True


def shapes(spec: TargetSpec, rows: int, width: int, capacities: Sequence[int]) -> dict[str, Shape]:
    """Of every input of the graph for `rows` rows of `width` tokens; `capacities` are the places
    of each row's buffers."""
    tokens = rows * width
    found: dict[str, Shape] = {"input_ids": (1, tokens), "logits_index": (tokens,)}
    if rows == 1:
        found["position_ids"] = (1, width)
    else:
        found["unpack_index"] = (tokens,)
    for row, capacity in enumerate(capacities):
        if rows > 1:
            found[f"position_ids.{row}"] = (1, width)
            found[f"row_index.{row}"] = (width,)
        if spec.features:
            found[f"feature_index.{row}"] = (width, 1)
        for name, size in spec.features.items():
            found[f"{KEPT}{name}.{row}"] = (capacity, size)
        for layer in range(spec.layers):
            for part in ("key", "value"):
                shape = (1, spec.kv_heads, capacity, spec.head_dim)
                found[f"past.{layer}.{row}.{part}"] = shape
    return found


def least(spec: TargetSpec, rows: int) -> dict[str, Shape]:
    """The same for the least runs of any width. A row that is not there gathers the first tokens
    again, so that there may be fewer of these than the rows together have; logits are wanted of
    `LEAST_WIDTH` at least (`in_profile`)."""
    found = shapes(spec, rows, LEAST_WIDTH, [LEAST_WIDTH + PAD_TOKENS] * rows)
    found["logits_index"] = (LEAST_WIDTH,)
    if rows > 1:
        found |= {"input_ids": (1, 1), "unpack_index": (1,)}
    return found


def in_profile(layout: Layout) -> Layout:
    """Of a run that wants no logits, the same with some that nobody reads: no engine is built for
    none."""
    if layout.logits_index.size:
        return layout
    return layout._replace(logits_index=np.zeros(LEAST_WIDTH, dtype=np.int64))


def profile(
    smallest: Mapping[str, Shape], usual: Mapping[str, Shape], most: Mapping[str, Shape]
) -> dict[str, str]:
    """Provider options that say for which shapes engines are built."""
    ends = {"min": smallest, "opt": usual, "max": most}
    return {f"trt_profile_{end}_shapes": written(each) for end, each in ends.items()}


def written(each: Mapping[str, Shape]) -> str:
    """As the provider reads it: `name:1x8,other:8`."""
    return ",".join(f"{name}:{'x'.join(map(str, shape))}" for name, shape in each.items())
