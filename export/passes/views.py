"""Reshapes and transposes: constant shapes, and none where they change nothing.

Every activation of the decoder is [1, tokens, ...] or, between two transposes, [1, heads, tokens,
head_dim]. A traced reshape computes the batch and token dimensions from its input; here the batch
is 1 and the token dimension is copied (0 in ONNX's notation).
"""

from __future__ import annotations

import numpy as np
from onnx import NodeProto

from export.graph import Graph
from export.passes.widths import width_of

_COPY = 0


def fix_shapes(graph: Graph) -> None:
    """Give every reshape a constant shape; the shape arithmetic is then unread."""
    for node in graph.of_type("Reshape"):
        if node.input[1] in graph.initializers:
            continue
        parts = _shape_parts(graph, node.input[1])
        name = graph.add_initializer(f"{node.name}/shape", np.array(parts, np.int64))
        graph.set_input(node, 1, name)
    graph.sweep()


def _shape_parts(graph: Graph, name: str) -> list[int]:
    concat = graph.producer(name)
    assert concat is not None, f"{name} is not a computed shape"
    assert concat.op_type == "Concat", f"{name} is not a computed shape"
    parts: list[int] = []
    for part in concat.input:
        known = graph.constant(part)
        if known is not None:
            parts.extend(int(size) for size in known.ravel())
        else:
            parts.append(_dimension(graph, part, len(parts)))
    assert parts.count(-1) <= 1, f"{name} leaves two dimensions open"
    return parts


def _dimension(graph: Graph, name: str, position: int) -> int:
    """A traced dimension, Unsqueeze(Gather(Shape(x), axis)): 1 for the batch, else copied."""
    node = graph.producer(name)
    while node is not None and node.op_type != "Gather":
        node = graph.producer(node.input[0])
    assert node is not None, f"{name} is not a dimension"
    axis = graph.constant(node.input[1])
    assert axis is not None, f"{name} is not a dimension"
    assert int(axis) == position, f"{name} moves a dimension"
    return 1 if position == 0 else _COPY


def simplify_views(graph: Graph) -> None:
    for norm in graph.of_type("SimplifiedLayerNormalization"):
        _sink_transpose(graph, norm)
    for node in graph.of_type("Transpose"):
        _cancel_transpose(graph, node)
    graph.sweep()
    for node in graph.of_type("Reshape"):
        _skip_reshape_before(graph, node)
    for node in graph.of_type("Reshape"):
        _drop_identity(graph, node)
    graph.sweep()


def _sink_transpose(graph: Graph, norm: NodeProto) -> None:
    """A norm over the last axis commutes with a transpose that keeps that axis."""
    before = graph.producer(norm.input[0])
    if before is None or before.op_type != "Transpose" or _order(before)[-1] != 3:
        return
    moved = f"{norm.output[0]}/sunk"
    readers = norm.output[0]
    graph.replace_uses(readers, moved)
    graph.set_input(norm, 0, before.input[0])
    graph.add("Transpose", [readers], [moved], name=f"{norm.name}/Transpose", perm=_order(before))


def _cancel_transpose(graph: Graph, node: NodeProto) -> None:
    before = graph.producer(node.input[0])
    if before is None or before.op_type != "Transpose":
        return
    first, second = _order(before), _order(node)
    if [first[axis] for axis in second] == list(range(len(first))):
        graph.replace_uses(node.output[0], before.input[0])


def _skip_reshape_before(graph: Graph, node: NodeProto) -> None:
    """Of two reshapes in a row only the last counts: both keep [1, tokens, ...]."""
    before = graph.producer(node.input[0])
    if before is not None and before.op_type == "Reshape" and _keeps_tokens(graph, node):
        graph.set_input(node, 0, before.input[0])


def _keeps_tokens(graph: Graph, node: NodeProto) -> bool:
    shape = graph.constant(node.input[1])
    return shape is not None and len(shape) >= 3 and int(shape[0]) in (0, 1)


def _drop_identity(graph: Graph, node: NodeProto) -> None:
    """A reshape to [1, tokens, width] of what already has this shape."""
    shape = graph.constant(node.input[1])
    if graph.is_output(node.output[0]) or shape is None or not _keeps_tokens(graph, node):
        return
    width = width_of(graph, node.input[0])
    if len(shape) == 3 and width is not None and int(shape[2]) in (-1, width):
        graph.replace_uses(node.output[0], node.input[0])


def _order(transpose: NodeProto) -> list[int]:
    return list(transpose.attribute[0].ints)
