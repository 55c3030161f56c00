"""The last dimension of activations, and the arithmetic that tracing does with it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto

from export.graph import Graph, attribute

_ARITHMETIC = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.floor_divide}


def fold_widths(graph: Graph) -> None:
    """What is computed from widths alone becomes a constant."""
    for node in graph.nodes:
        value = _value(graph, node)
        if value is not None:
            graph.remove(node)
            graph.add_initializer(node.output[0], value)


def _value(graph: Graph, node: NodeProto) -> NDArray[Any] | None:
    if node.op_type == "Gather":
        shape, index = graph.producer(node.input[0]), graph.constant(node.input[1])
        if shape is None or shape.op_type != "Shape" or index is None:
            return None
        width = width_of(graph, shape.input[0]) if set(index.ravel()) <= {2, -1} else None
        return None if width is None else np.full(index.shape, width, np.int64)
    if node.op_type in _ARITHMETIC:
        left, right = (graph.constant(name) for name in node.input)
        if left is None or right is None or left.dtype != np.int64:
            return None
        return np.asarray(_ARITHMETIC[node.op_type](left, right))
    return None


def width_of(graph: Graph, name: str) -> int | None:
    """The last dimension of a [1, tokens, width] activation, where it is plain to see."""
    node = graph.producer(name)
    if node is None:
        return None
    if node.op_type == "MatMul" and node.input[1] in graph.initializers:
        return int(graph.initializers[node.input[1]].dims[1])
    if node.op_type == "Add":
        return next((w for w in (width_of(graph, i) for i in node.input) if w is not None), None)
    if node.op_type in ("Slice", "Split"):
        return _width_of_part(graph, node, name)
    if node.op_type == "GroupQueryAttention":
        past = next(i for i in graph.model.graph.input if i.name == node.input[3])
        head_dim = past.type.tensor_type.shape.dim[3].dim_value
        return int(attribute(node, "num_heads", 0)) * int(head_dim)
    return None


def _width_of_part(graph: Graph, node: NodeProto, name: str) -> int | None:
    whole = width_of(graph, node.input[0])
    if whole is None:
        return None
    if node.op_type == "Split":
        sizes = graph.constant(node.input[1]) if len(node.input) > 1 else None
        position = list(node.output).index(name)
        return whole // len(node.output) if sizes is None else int(sizes[position])
    begin, end = graph.constant(node.input[1]), graph.constant(node.input[2])
    if begin is None or end is None:
        return None
    return min(int(end[0]), whole) - int(begin[0])
