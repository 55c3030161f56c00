"""Moves norm weights and rotations into the linear layers. The graph's function stays the same.

RMSNorm without its weight commutes with any orthogonal matrix R: norm(x R) = norm(x) R. With all
norm weights folded into the layers that follow, the whole residual stream may be kept rotated: R
goes into what writes to it (embedding, o, down) and its transpose into what reads from it (qkv,
gate_up, lm_head). Each value head may be rotated by itself, undone in the rows of o that read it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto

from export.graph import Graph
from export.quantization.basis import Basis, note_basis
from export.quantization.rotation import Matrix, rotation
from export.quantization.structure import (
    EMBEDDING,
    FINAL_NORM,
    HEAD,
    NORMS,
    Shape,
    linear,
    shape_of,
    weight,
)

_SHAPE_ONLY = ("Reshape", "Squeeze", "Unsqueeze", "Gather", "Identity")


def can_rotate(graph: Graph) -> bool:
    """True where nothing but weightless norms stands between the residual stream and the layers.

    Norms after attention or MLP (Gemma 2 and 3), a scaled stream or biases on o and down do not
    commute with a rotation.
    """
    layers = range(shape_of(graph).layers)
    writers = [f"layers.{layer}.{part}" for layer in layers for part in ("o", "down")]
    readers = [f"layers.{layer}.{part}" for layer in layers for part in ("qkv", "gate_up")]
    names = {node.name for node in graph.of_type("MatMul")}
    if not names.issuperset([*writers, *readers, HEAD]):
        return False
    sums = [_only_norms(graph.consumers(linear(graph, name).output[0])) for name in writers]
    embedding = next((n for n in graph.nodes if n.input and n.input[0] == EMBEDDING), None)
    if embedding is None or not all(sums) or not _only_norms(graph.consumers(embedding.output[0])):
        return False
    norms = [_norm_before(graph, name) for name in (*readers, HEAD)]
    return all(norms) and len({id(n) for n in norms}) == len(graph.of_type(*NORMS)) - _head_norms(
        graph
    )


def fold_norms(graph: Graph) -> None:
    """Every norm that one linear layer follows gets weight one."""
    for name in _layer_inputs(graph):
        norm = _norm_before(graph, name)
        assert norm is not None
        scale = weight(graph, norm.input[-1])
        graph.add_initializer(name, weight(graph, name) * scale[:, None])
        graph.add_initializer(norm.input[-1], np.ones_like(scale))


def rotate_stream(graph: Graph, seed: int) -> None:
    """Fold the norms and rotate the residual stream; the model notes how to undo both."""
    note_basis(graph.model, Basis(seed, weight(graph, FINAL_NORM)))
    fold_norms(graph)
    shape = shape_of(graph)
    turn = rotation(shape.hidden, seed)
    _multiply_right(graph, EMBEDDING, turn)
    for name in _layer_inputs(graph):
        graph.add_initializer(name, _float(turn.T @ weight(graph, name).astype(np.float64)))
    for layer in range(shape.layers):
        for part in ("o", "down"):
            _multiply_right(graph, f"layers.{layer}.{part}", turn)


def rotate_values(graph: Graph, seed: int) -> None:
    """Rotate every value head; the rows of o that read it are rotated back."""
    shape = shape_of(graph)
    turn = rotation(shape.head_dim, seed)
    for layer in range(shape.layers):
        if _values_reach_output(graph, layer):
            _rotate_layer_values(graph, shape, layer, turn)


def _rotate_layer_values(graph: Graph, shape: Shape, layer: int, turn: Matrix) -> None:
    name, columns = f"layers.{layer}.qkv", shape.value_columns
    for part in (name, f"{name}_bias"):
        if part in graph.initializers:
            values = weight(graph, part)
            heads = values[..., columns].reshape(-1, shape.kv_heads, shape.head_dim)
            values[..., columns] = (heads @ turn).reshape(values[..., columns].shape)
            graph.add_initializer(part, values)
    output = weight(graph, f"layers.{layer}.o")
    rows = output.reshape(shape.heads, shape.head_dim, -1).astype(np.float64)
    graph.add_initializer(f"layers.{layer}.o", _float((turn.T @ rows).reshape(output.shape)))


def _values_reach_output(graph: Graph, layer: int) -> bool:
    """v comes straight from the packed qkv layer and attention goes straight into o."""
    name = f"layers.{layer}"
    attention = next(n for n in graph.nodes if n.name == f"{name}.attention.0")
    source = attention.input[2] or attention.input[0]
    maker = graph.producer(source)
    if maker is not None and maker.op_type == "Split":
        maker = graph.producer(maker.input[0])
    if maker is not None and maker.op_type == "Add":
        maker = next((p for i in maker.input if (p := graph.producer(i)) is not None), None)
    reads = [n.name for n in graph.consumers(attention.output[0])]
    return maker is not None and maker.name == f"{name}.qkv" and reads == [f"{name}.o"]


def _layer_inputs(graph: Graph) -> list[str]:
    layers = range(shape_of(graph).layers)
    return [f"layers.{i}.{part}" for i in layers for part in ("qkv", "gate_up")] + [HEAD]


def _norm_before(graph: Graph, name: str) -> NodeProto | None:
    """The norm that a linear layer reads, through nodes that only move tokens about."""
    node = graph.producer(linear(graph, name).input[0])
    while node is not None and node.op_type in _SHAPE_ONLY:
        node = graph.producer(node.input[0])
    return node if node is not None and node.op_type in NORMS else None


def _head_norms(graph: Graph) -> int:
    """Norms of single q and k heads: they see no residual stream and may keep their weights."""
    return sum(n.name.endswith((".q_norm", ".k_norm")) for n in graph.of_type(*NORMS))


def _only_norms(nodes: Sequence[NodeProto]) -> bool:
    return bool(nodes) and all(node.op_type in NORMS for node in nodes)


def _multiply_right(graph: Graph, name: str, turn: Matrix) -> None:
    graph.add_initializer(name, _float(weight(graph, name).astype(np.float64) @ turn))


def _float(values: Matrix) -> NDArray[np.float32]:
    return values.astype(np.float32)
