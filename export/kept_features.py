"""Features on a device: written into the slot's own buffers, and read from there.

A graph on a host writes `hidden.r` [S_r, h] wherever it is told. A captured run cannot be told
anything, so here the graph scatters them itself: `kept.hidden.r` [capacity, h] and `hidden.r` are
bound to the slot's buffer, and `feature_index.r` [S_r, 1] says at which places the rows belong.
Likewise a drafter's `features` are the whole buffer, of which `feature_index` [N] are read.
"""

from __future__ import annotations

import onnx
from onnx import TensorProto, helper

from export.rows import FEATURES
from models.package import FEATURE_INDEX, KEPT

_READ = "features"


def keep_features(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of a target's graph, for any number of rows, that writes features in place."""
    kept = onnx.ModelProto()
    kept.CopyFrom(model)
    indexed: set[str] = set()
    for output in kept.graph.output:
        feature, _, row = output.name.partition(".")
        if feature in FEATURES:
            _scatter(kept.graph, output, f"{FEATURE_INDEX}.{row}", new=row not in indexed)
            indexed.add(row)
    return kept


def _scatter(graph: onnx.GraphProto, output: onnx.ValueInfoProto, index: str, *, new: bool) -> None:
    name, kind = output.name, output.type.tensor_type
    tokens, width = kind.shape.dim
    rows, place = f"{name}/rows", f"{KEPT}{name}"
    for node in graph.node:
        node.output[:] = [rows if each == name else each for each in node.output]
    scatter = helper.make_node("ScatterND", [place, index, rows], [name], name=f"{name}/kept")
    graph.node.append(scatter)
    shape = [f"capacity.{name}", width.dim_value]
    graph.input.append(helper.make_tensor_value_info(place, kind.elem_type, shape))
    if new:
        graph.input.append(
            helper.make_tensor_value_info(index, TensorProto.INT64, [tokens.dim_param, 1])
        )
    output.CopyFrom(helper.make_tensor_value_info(name, kind.elem_type, shape))


def read_features(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of a drafter's graph that reads some rows of the whole buffer of features."""
    reading = onnx.ModelProto()
    reading.CopyFrom(model)
    graph = reading.graph
    source = next((value for value in graph.input if value.name == _READ), None)
    if source is None:
        return reading
    kind = source.type.tensor_type
    count, width = kind.shape.dim
    for node in graph.node:
        node.input[:] = [f"{_READ}/rows" if each == _READ else each for each in node.input]
    gather = helper.make_node(
        "Gather", [_READ, FEATURE_INDEX], [f"{_READ}/rows"], name=f"{_READ}/rows", axis=0
    )
    graph.node.insert(0, gather)
    size: list[int | str] = [count.dim_value or count.dim_param]
    graph.input.append(helper.make_tensor_value_info(FEATURE_INDEX, TensorProto.INT64, size))
    columns = width.dim_value or width.dim_param
    source.CopyFrom(helper.make_tensor_value_info(_READ, kind.elem_type, ["capacity", columns]))
    return reading
