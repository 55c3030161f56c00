"""Gives a package of random weights a larger vocabulary: embedding and head repeat their rows.

A head of a hundred thousand rows takes most of an export's time and memory, and a run of it costs
what its size says, not what is in it.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, helper, numpy_helper

from bench.synthetic.random_checkpoint import tokenizer_of
from export.writer import ALIGNMENT, save_graph
from models.package import MANIFEST, file_entry, load_package, write_manifest

EXPORTED = 2048
"""Tokens of the package that gets more."""


def widen(directory: Path, vocabulary: int) -> None:
    """Give the package in `directory` a vocabulary of so many tokens, more than it has."""
    manifest = load_package(directory).manifest
    target = manifest.target
    known: dict[str, TensorProto] = {}
    for name in (*target.graphs.values(), *target.tree_graphs.values()):
        graph = onnx.load(str(directory / name), load_external_data=False)
        _widen_graph(graph, directory / target.weights, known, target.vocab_size, vocabulary)
        save_graph(graph, directory / name)
    tokenizer = tokenizer_of(vocabulary).backend_tokenizer.to_str()
    (directory / manifest.tokenizer).write_text(tokenizer, encoding="utf-8")
    files = [path for path in sorted(directory.iterdir()) if path.name != MANIFEST]
    changed = dataclasses.replace(
        manifest,
        target=dataclasses.replace(target, vocab_size=vocabulary),
        files={path.name: file_entry(path) for path in files},
        settings={**manifest.settings, "repeated_tokens": str(vocabulary - target.vocab_size)},
    )
    write_manifest(directory, changed)


def _widen_graph(
    model: ModelProto, weights: Path, known: dict[str, TensorProto], old: int, new: int
) -> None:
    """In place. Graphs share one file: what `known` has was written with an earlier one."""
    for tensor in model.graph.initializer:
        if old in tensor.dims:
            if tensor.name not in known:
                known[tensor.name] = _repeated(tensor, weights, old, new)
            tensor.CopyFrom(known[tensor.name])
        elif tensor.data_type == TensorProto.INT64 and not tensor.external_data:
            values = numpy_helper.to_array(tensor)
            if (values == old).any():
                changed = np.where(values == old, new, values).astype(np.int64)
                tensor.CopyFrom(numpy_helper.from_array(changed, tensor.name))
    for port in model.graph.output:
        for dimension in port.type.tensor_type.shape.dim:
            if dimension.dim_value == old:
                dimension.dim_value = new


def _repeated(tensor: TensorProto, weights: Path, old: int, new: int) -> TensorProto:
    """A reference to `tensor` with its axis of `old` entries repeated to `new`."""
    axis = list(tensor.dims).index(old)
    values = np.take(_values(tensor, weights), np.arange(new) % old, axis=axis)
    with weights.open("ab") as stream:
        stream.write(b"\0" * (-stream.tell() % ALIGNMENT))
        place = {"location": weights.name, "offset": stream.tell(), "length": values.nbytes}
        stream.write(values.tobytes())
    changed = TensorProto(
        name=tensor.name,
        data_type=tensor.data_type,
        dims=values.shape,
        data_location=TensorProto.EXTERNAL,
    )
    for key, value in place.items():
        changed.external_data.add(key=key, value=str(value))
    return changed


def _values(tensor: TensorProto, weights: Path) -> NDArray[np.generic]:
    if not tensor.external_data:
        return numpy_helper.to_array(tensor)
    entries = {entry.key: entry.value for entry in tensor.external_data}
    kind = helper.tensor_dtype_to_np_dtype(tensor.data_type)
    count = int(np.prod(tensor.dims))
    flat = np.fromfile(weights, dtype=kind, count=count, offset=int(entries["offset"]))
    return flat.reshape(tuple(tensor.dims))
