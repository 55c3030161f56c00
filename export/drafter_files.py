"""A drafter on disk: a graph per draft length and tree depth, all on the same weights.

Embedding tables, usually the target's, are in a file that drafters of a package share; a drafter
with tables of its own keeps them with its weights. Tables are mapped from there; of its linear
layers every session keeps a packed copy (measured on a CPU, for 13 MB of integers and 4 of fp32:
20 MB a session), so large drafters should have few lengths and depths.
"""

from __future__ import annotations

import dataclasses
import filecmp
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from export.heads.step import StepGraph
from export.kept_features import read_features
from export.replicas import distinct
from export.unroll import VOCABULARY, unroll
from export.unroll_tree import unroll_tree
from export.writer import externalise, save_graph
from models.package import vocabulary_file

EMBEDDING = "drafters.embedding"
STEP_COUNTS = (1, 2, 3, 4, 5, 6, 8)


@dataclass(frozen=True, slots=True)
class DrafterFiles:
    """File names, as `DrafterSpec` has them."""

    graphs: Mapping[str, str]
    tree_graphs: Mapping[str, str]
    weights: tuple[str, ...]


def write_drafter(
    directory: Path,
    kind: str,
    step: StepGraph,
    *,
    steps: Sequence[int] = STEP_COUNTS,
    depths: Sequence[int] = (),
    width: int = 0,
    device: str = "cpu",
) -> DrafterFiles:
    """Write the graphs of a drafter whose step has its final weights (`lowering.lower`).

    On a GPU they read the slot's features in place.
    """
    finish = read_features if device != "cpu" else _as_it_is
    weights, skeleton, references = _write_weights(directory, kind, step)
    if step.ids is not None:
        # For the host, which makes the noise of these tokens.
        np.save(directory / vocabulary_file(kind), step.ids.astype(np.int64))
    graphs, trees = {}, {}
    for count in steps:
        graphs[str(count)] = f"{kind}.k{count}.onnx"
        _save(finish(unroll(skeleton, count)), references, directory / graphs[str(count)])
    for depth in depths:
        trees[str(depth)] = f"{kind}.tree.d{depth}.onnx"
        tree = finish(unroll_tree(skeleton, depth, width))
        _save(tree, references, directory / trees[str(depth)])
    return DrafterFiles(graphs, trees, weights)


def _as_it_is(model: onnx.ModelProto) -> onnx.ModelProto:
    return model


def _write_weights(
    directory: Path, kind: str, step: StepGraph
) -> tuple[tuple[str, ...], StepGraph, Mapping[str, TensorProto]]:
    """(files, the step with references for tensors, these by name)."""
    entry = [] if step.entry is None else [step.entry]
    models = distinct([step.model, *step.later, *entry])
    tensors = {tensor.name: tensor for model in models for tensor in model.graph.initializer}
    if step.ids is not None:
        tensors[VOCABULARY] = numpy_helper.from_array(step.ids.astype(np.int64), VOCABULARY)
    tables = _tables(models) & tensors.keys()
    files, references = [f"{kind}.weights"], dict[str, TensorProto]()
    shared = _write_shared(directory, [tensors[name] for name in sorted(tables)])
    if shared:
        files.append(EMBEDDING)
        references.update(shared)
    own = [tensor for name, tensor in tensors.items() if name not in references]
    references.update(_written(own, directory / files[0]))
    models = [_referring(model, references) for model in models]
    skeleton = dataclasses.replace(
        step,
        model=models[0],
        later=tuple(models[1 : 1 + len(step.later)]),
        entry=models[-1] if entry else None,
    )
    return tuple(files), skeleton, references


def _tables(models: Iterable[onnx.ModelProto]) -> set[str]:
    """Tensors that embeddings are looked up in: the rows, and their scales."""
    return {
        node.input[0] for model in models for node in model.graph.node if node.op_type == "Gather"
    }


def _write_shared(directory: Path, tables: list[TensorProto]) -> Mapping[str, TensorProto]:
    """References into the shared file; none where it holds other tables already."""
    if not tables:
        return {}
    path = directory / EMBEDDING
    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        written = Path(scratch) / EMBEDDING
        references = _written(tables, written)
        if not path.exists():
            written.rename(path)
        elif not filecmp.cmp(written, path, shallow=False):
            return {}
    return references


def _written(tensors: list[TensorProto], path: Path) -> Mapping[str, TensorProto]:
    holder = helper.make_model(helper.make_graph([], path.name, [], [], tensors))
    return {tensor.name: tensor for tensor in externalise(holder, path).graph.initializer}


def _referring(model: onnx.ModelProto, references: Mapping[str, TensorProto]) -> onnx.ModelProto:
    graph = model.graph
    skeleton = helper.make_model(
        helper.make_graph(
            list(graph.node),
            graph.name,
            list(graph.input),
            list(graph.output),
            [references[tensor.name] for tensor in graph.initializer],
        ),
        opset_imports=list(model.opset_import),
    )
    skeleton.ir_version = model.ir_version
    return skeleton


def _save(model: onnx.ModelProto, references: Mapping[str, TensorProto], path: Path) -> None:
    for tensor in model.graph.initializer:
        if tensor.name in references:
            tensor.CopyFrom(references[tensor.name])
    save_graph(model, path)
