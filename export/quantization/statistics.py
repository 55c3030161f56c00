"""What linear layers see on calibration text: correlations for rounding, scales for inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from export.quantization.scratch import GraphOnDisk
from export.runner import RowStep

_HESSIAN_BYTES = 1 << 30
_KEPT_ROWS = 192
_CLIPS = np.linspace(0.3, 1.0, 15)
Array = NDArray[np.float32]


@dataclass(slots=True)
class InputStatistics:
    """Of one layer's input rows x: `hessian` is the sum of x^T x, `rows` some of them."""

    hessian: Array
    rows: Array

    def add(self, rows: Array) -> None:
        self.hessian += rows.T @ rows
        room = _KEPT_ROWS - len(self.rows)
        if room > 0:
            step = max(1, len(rows) // 12)
            self.rows = np.concatenate([self.rows, rows[::step][:room]])


def static_scale(rows: Array, levels: int) -> float:
    """The scale of a symmetric quantiser with the least mean square error on `rows`."""
    largest = float(np.abs(rows).max())
    best, least = largest / levels, np.inf
    for clip in _CLIPS:
        scale = np.float32(largest * clip / levels)
        rounded = np.clip(np.rint(rows / scale), -levels - 1, levels) * scale
        error = float(np.square(rounded - rows).mean())
        if error < least:
            best, least = float(scale), error
    return best


def collect(
    graph: GraphOnDisk, inputs: Mapping[str, tuple[str, int]], texts: Sequence[Sequence[int]]
) -> Iterator[dict[str, InputStatistics]]:
    """Statistics of layers, some layers at a time so that their Hessians fit in memory.

    `inputs` maps a layer to the tensor it reads and the width of that.
    """
    for group in _groups(inputs):
        statistics = {
            name: InputStatistics(
                np.zeros((inputs[name][1],) * 2, np.float32),
                np.zeros((0, inputs[name][1]), np.float32),
            )
            for name in group
        }
        taps = list(dict.fromkeys(inputs[name][0] for name in group))
        runner = graph.runner(1, max(map(len, texts)), taps)
        for text in texts:
            results = runner.run([RowStep(text)])
            for name, statistic in statistics.items():
                tensor, width = inputs[name]
                statistic.add(results[tensor].reshape(-1, width).astype(np.float32))
        yield statistics


def _groups(inputs: Mapping[str, tuple[str, int]]) -> Iterator[list[str]]:
    group: list[str] = []
    size = 0
    for name, (_, width) in inputs.items():
        if group and size + 4 * width * width > _HESSIAN_BYTES:
            yield group
            group, size = [], 0
        group.append(name)
        size += 4 * width * width
    yield group
