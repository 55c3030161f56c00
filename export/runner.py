"""Runs an exported graph with in-place K/V buffers: just enough to check what was exported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from models.package import FEATURE_INDEX, KEPT
from models.trees import HIDDEN, attention_bias, depths

KV_TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16}


def available_devices() -> tuple[str, ...]:
    """Where a graph can be run here."""
    providers = ort.get_available_providers()
    return ("cpu", "cuda") if "CUDAExecutionProvider" in providers else ("cpu",)


@dataclass(frozen=True, slots=True)
class Layout:
    """Tokens that follow what they like: their positions [S], and whom they see [S, past + S].

    The causal mask stays on.
    """

    positions: NDArray[np.int64]
    seen: NDArray[np.bool_]


def checking_session(path: Path, device: str) -> ort.InferenceSession:
    """A session that leaves the processor to others while it waits: several are often alive."""
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    provider = "CUDAExecutionProvider" if device == "cuda" else "CPUExecutionProvider"
    return ort.InferenceSession(str(path), options, providers=[provider])


@dataclass(frozen=True, slots=True)
class RowStep:
    """Tokens of one row, behind `past` tokens that its buffers already hold.

    With `parents` they are a tree, which only graphs for trees can run, as they do a `layout`.
    """

    tokens: Sequence[int]
    past: int = 0
    parents: Sequence[int] | None = None
    layout: Layout | None = None


class GraphRunner:
    """One session on one graph. Buffers hold `capacity` positions per row.

    `buffers` are K/V by the name of the graph's input; those given are shared, the rest are made.
    """

    def __init__(
        self,
        path: Path,
        *,
        capacity: int,
        device: str = "cpu",
        buffers: Mapping[str, ort.OrtValue] | None = None,
    ) -> None:
        self._session = checking_session(path, device)
        self._binding = self._session.io_binding()
        self._device = device
        self.buffers: dict[str, ort.OrtValue] = dict(buffers or {})
        self._fed: dict[str, NDArray[Any]] = {}
        self._results = [
            output.name
            for output in self._session.get_outputs()
            if not output.name.startswith("present.")
        ]
        self._kept = {
            value.name.removeprefix(KEPT): self._keep(value, capacity)
            for value in self._session.get_inputs()
            if value.name.startswith(KEPT)
        }
        self._results = [name for name in self._results if name not in self._kept]
        pasts = [i for i in self._session.get_inputs() if i.name.startswith("past.")]
        self.rows = 1 + max(int(value.name.split(".")[2]) for value in pasts)
        for value in pasts:
            shape = [1, value.shape[1], capacity, value.shape[3]]
            if value.name not in self.buffers:
                self.buffers[value.name] = ort.OrtValue.ortvalue_from_numpy(
                    np.zeros(shape, KV_TYPES[value.type]), device, 0
                )
            buffer = self.buffers[value.name]
            self._binding.bind_ortvalue_input(value.name, buffer)
            self._binding.bind_ortvalue_output(value.name.replace("past.", "present."), buffer)
        self._inputs = {value.name for value in self._session.get_inputs()}
        self._kv_type = "fp16" if pasts[0].type == "tensor(float16)" else "fp32"

    def run(
        self, steps: Sequence[RowStep], wanted: Sequence[int] | None = None
    ) -> dict[str, NDArray[Any]]:
        """All small outputs. `wanted` are indices into the packed tokens (None: all of them)."""
        assert len(steps) == self.rows
        tokens = [token for step in steps for token in step.tokens]
        index = range(len(tokens)) if wanted is None else wanted
        self._feed("input_ids", np.array([tokens], np.int64))
        self._feed("logits_index", np.array(index, np.int64))
        self._feed_rows(steps)
        for name in self._results:
            self._binding.bind_output(name, "cpu")
        self._session.run_with_iobinding(self._binding)
        outputs = self._binding.get_outputs()[-len(self._results) :]
        found = {n: v.numpy() for n, v in zip(self._results, outputs, strict=True)}
        for name, buffer in self._kept.items():
            step = steps[int(name.partition(".")[2])]
            found[name] = buffer.numpy()[step.past : step.past + len(step.tokens)].copy()
        return found

    def _keep(self, value: Any, capacity: int) -> ort.OrtValue:
        """A buffer that a feature is written to in place."""
        zeros = np.zeros((capacity, value.shape[1]), KV_TYPES[value.type])
        buffer = ort.OrtValue.ortvalue_from_numpy(zeros, self._device, 0)
        self._binding.bind_ortvalue_input(value.name, buffer)
        self._binding.bind_ortvalue_output(value.name.removeprefix(KEPT), buffer)
        return buffer

    def _feed_rows(self, steps: Sequence[RowStep]) -> None:
        begin = 0
        for row, step in enumerate(steps):
            count = len(step.tokens)
            total = step.past + count
            positions = _positions(step)
            if self.rows > 1:
                self._feed(f"row_index.{row}", np.arange(begin, begin + count, dtype=np.int64))
                self._feed(f"position_ids.{row}", positions)
            else:
                self._feed("position_ids", positions)
            self._feed(f"seqlens_k.{row}", np.array([total - 1], np.int32))
            self._feed(f"total_length.{row}", np.array(total, np.int32))
            places = np.arange(step.past, total, dtype=np.int64)[:, None]
            self._feed(f"{FEATURE_INDEX}.{row}", places)
            bias = f"attention_bias.{row}"
            if bias in self._inputs:
                self._feed(bias, _bias(step, total, self._kv_type))
            branches = step.parents is not None or step.layout is not None
            assert not branches or bias in self._inputs, "a graph for trees"
            begin += count
        if self.rows > 1:
            self._feed("unpack_index", np.arange(begin, dtype=np.int64))

    def _feed(self, name: str, values: NDArray[Any]) -> None:
        if name in self._inputs:
            # The binding borrows the array's memory.
            self._fed[name] = values
            self._binding.bind_cpu_input(name, values)


def _positions(step: RowStep) -> NDArray[np.int64]:
    """[1, S]."""
    if step.layout is not None:
        return step.layout.positions[None]
    count = len(step.tokens)
    own = np.arange(count) if step.parents is None else depths(step.parents)
    return step.past + own[None]


def _bias(step: RowStep, total: int, kv_type: str) -> NDArray[np.floating[Any]]:
    """[1, 1, S, total]."""
    if step.layout is None:
        return attention_bias(step.parents, len(step.tokens), total, kv_type)
    bias = attention_bias(None, len(step.tokens), total, kv_type)
    bias[0, 0, ~step.layout.seen] = HIDDEN[kv_type]
    return bias
