"""Runs a drafter's graph for chains: just enough to check what was exported."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from export.runner import KV_TYPES, checking_session
from models.package import FEATURE_INDEX

Features = NDArray[np.float32]
_PAST, _PRESENT = "past.", "present."


class ChainRunner:
    """One session on a graph for K draft steps, greedy. Buffers hold `capacity` entries.

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
        self._inputs = {value.name: value for value in self._session.get_inputs()}
        self._buffers = dict(buffers or {})
        self._fed: dict[str, NDArray[Any]] = {}
        self._results = []
        for value in self._inputs.values():
            if value.name.startswith(_PAST):
                self._bind(value, capacity, device)
        for output in self._session.get_outputs():
            if output.name.startswith(_PRESENT):
                # `present.0.0.key`, and `present.0.0.key.2` of the steps before the last.
                past = _PAST + ".".join(output.name.split(".")[1:4])
                self._binding.bind_ortvalue_output(output.name, self._buffers[past])
            else:
                self._results.append(output.name)
        self.steps = int(self._inputs["noise"].shape[0])
        self._feed_greedy()

    def draft(
        self, ids: Sequence[int], features: Features | None = None, past: int = 0
    ) -> list[int]:
        """The K tokens behind entries of `ids` and `features` [N, F] that follow `past` others."""
        count = len(ids)
        self._feed("input_ids", np.array([ids], np.int64))
        if features is not None:
            kind = KV_TYPES[self._inputs["features"].type]
            self._feed("features", np.ascontiguousarray(features, kind))
            self._feed(FEATURE_INDEX, np.arange(count, dtype=np.int64))
        for step in range(self.steps):
            end = past + count + step
            positions = np.arange(past, end) if step == 0 else np.array([end - 1])
            # Steps of heads with several modules run over the same entries again.
            self._feed(f"position_ids.{step}", positions[None].astype(np.int64))
            self._feed(f"seqlens_k.{step}", np.array([end - 1], np.int32))
            self._feed(f"total_length.{step}", np.array(end, np.int32))
        for name in self._results:
            self._binding.bind_output(name, "cpu")
        self._session.run_with_iobinding(self._binding)
        outputs = self._binding.get_outputs()[-len(self._results) :]
        found = {name: value.numpy() for name, value in zip(self._results, outputs, strict=True)}
        return [int(token) for token in found["draft_ids"]]

    def following(
        self, ids: Sequence[int], features: Features | None = None, again: int = 0
    ) -> Callable[[int], list[int]]:
        """Drafts behind the first m tokens of a text, m rising: only what is new is run.

        An entry pairs a feature with the token behind it, where there are features. The last
        `again` entries of a draft are run again in the next.
        """
        offset = 0 if features is None else 1
        known = 0

        def behind(length: int) -> list[int]:
            nonlocal known
            begin, known = max(known - again, 0), length - offset
            seen = None if features is None else features[begin:known]
            return self.draft(ids[begin + offset : length], seen, begin)

        return behind

    def _bind(self, value: Any, capacity: int, device: str) -> None:
        if value.name not in self._buffers:
            shape = [1, value.shape[1], capacity, value.shape[3]]
            zeros = np.zeros(shape, KV_TYPES[value.type])
            self._buffers[value.name] = ort.OrtValue.ortvalue_from_numpy(zeros, device, 0)
        self._binding.bind_ortvalue_input(value.name, self._buffers[value.name])

    def _feed_greedy(self) -> None:
        shape = [int(size) for size in self._inputs["noise"].shape]
        self._feed("noise", np.zeros(shape, np.float32))
        self._feed("inverse_temperature", np.ones(1, np.float32))
        self._feed("top_p", np.ones(1, np.float32))
        self._feed("top_k", np.array([1], np.int64))

    def _feed(self, name: str, values: NDArray[Any]) -> None:
        if name in self._inputs:
            # The binding borrows the array's memory.
            self._fed[name] = values
            self._binding.bind_cpu_input(name, values)
