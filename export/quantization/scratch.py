"""Graphs in a scratch directory, run while they are being made."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx
from onnx import TensorProto, helper

from export.rows import derive_rows
from export.runner import GraphRunner
from export.writer import externalise, save_graph


@dataclass(frozen=True, slots=True)
class GraphOnDisk:
    """A graph whose weights lie in `directory`, for sessions with several row counts."""

    skeleton: onnx.ModelProto
    directory: Path

    def runner(self, rows: int, capacity: int, taps: Sequence[str] = ()) -> GraphRunner:
        """`taps` are float tensors to return beside the graph's outputs."""
        model = derive_rows(self.skeleton, rows)
        known = {output.name for output in model.graph.output}
        for name in taps:
            if name not in known:
                value = helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
                model.graph.output.append(value)
        path = self.directory / f"r{rows}.onnx"
        save_graph(model, path)
        return GraphRunner(path, capacity=capacity)


@contextlib.contextmanager
def on_disk(model: onnx.ModelProto) -> Iterator[GraphOnDisk]:
    with tempfile.TemporaryDirectory(prefix="outpace-") as name:
        directory = Path(name)
        yield GraphOnDisk(externalise(model, directory / "weights"), directory)
