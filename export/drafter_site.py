"""Where a drafter is made: the target's stored graphs, prompts, and what it answers to them."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from export.layer_agreement import StoredTarget, write_drafted
from export.quantization.answers import Answer, prompt_ids
from export.quantization.context import CalibrationContext
from export.quantization.prompts import CALIBRATION, HELD_OUT
from export.rows import FEATURES
from export.runner import GraphRunner, RowStep, available_devices
from models.package import TargetSpec

CHECKED_PROMPTS = 20
"""Prompts on which a drafter must propose what its reference does."""
_LONGEST_PROMPT = 256
_LONGEST_TEXT = 1024
_CHUNK = 128
_ROOM = 16


@dataclass(frozen=True)
class Site:
    """`directory` holds the target's files, described by `target`. `questions` are the user's own
    prompts (none: those that come with the export)."""

    directory: Path
    target: TargetSpec
    context: CalibrationContext
    questions: tuple[str, ...] = ()
    device: str = field(init=False)

    def __post_init__(self) -> None:
        usable = self.target.device in available_devices()
        object.__setattr__(self, "device", self.target.device if usable else "cpu")

    @functools.cached_property
    def single(self) -> onnx.ModelProto:
        """The stored graph for one row, its weights outside."""
        path = self.directory / self.target.graphs["1"]
        return onnx.load(str(path), load_external_data=False)

    @property
    def stored(self) -> StoredTarget:
        return StoredTarget(self.single, self.directory, self.target.context_length, self.device)

    @functools.cached_property
    def prompts(self) -> tuple[tuple[int, ...], ...]:
        """Ids of twenty prompts, long ones cut, at least three tokens each."""
        questions = (*self.questions, *HELD_OUT, *CALIBRATION)[:CHECKED_PROMPTS]
        most = min(_LONGEST_PROMPT, self.target.context_length // 2)
        return tuple(ids[:most] for ids in prompt_ids(self.context, questions))

    @functools.cached_property
    def answers(self) -> tuple[Answer, ...]:
        """The target's own greedy answers: what drafts are measured on."""
        return tuple(write_drafted(self.stored, self.questions or HELD_OUT, self.context))

    def observe(self, ids: Sequence[int]) -> Mapping[str, NDArray[np.float32]]:
        """The target's features of a text, [len(ids), width] each."""
        runner = self._runner
        assert len(ids) <= self._capacity, "texts are short"
        parts: list[dict[str, NDArray[Any]]] = []
        begin = 0
        while begin < len(ids):
            end = begin + _CHUNK if len(ids) - begin > _CHUNK + 1 else len(ids)
            parts.append(runner.run([RowStep(ids[begin:end], begin)], []))
            begin = end
        return {
            name: np.concatenate([part[f"{name}.0"] for part in parts]).astype(np.float32)
            for name in FEATURES
            if f"{name}.0" in parts[0]
        }

    @property
    def _capacity(self) -> int:
        return min(self.target.context_length, _LONGEST_TEXT) + _ROOM

    @functools.cached_property
    def _runner(self) -> GraphRunner:
        path = self.directory / self.target.graphs["1"]
        return GraphRunner(path, capacity=self._capacity, device=self.device)
