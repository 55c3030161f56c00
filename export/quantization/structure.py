"""Which parts of a canonical graph quantisation may touch, and how they hang together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto

from export.graph import Graph, attribute

NORMS = ("SimplifiedLayerNormalization", "SkipSimplifiedLayerNormalization")
HEAD = "lm_head"
FINAL_NORM = "final_norm"
EMBEDDING = "embedding"
Array = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a decoder, read off its attention nodes and its head."""

    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    hidden: int

    @property
    def value_columns(self) -> slice:
        """Where v lies in the packed qkv weight [hidden, q + k + v]."""
        begin = (self.heads + self.kv_heads) * self.head_dim
        return slice(begin, begin + self.kv_heads * self.head_dim)


def shape_of(graph: Graph) -> Shape:
    attention = graph.of_type("GroupQueryAttention")
    first = attention[0]
    past = next(value for value in graph.model.graph.input if value.name == first.input[3])
    return Shape(
        layers=len(attention),
        heads=int(attribute(first, "num_heads", 0)),
        kv_heads=int(attribute(first, "kv_num_heads", 0)),
        head_dim=int(past.type.tensor_type.shape.dim[3].dim_value),
        hidden=int(graph.initializers[HEAD].dims[0]),
    )


def linears_of(graph: Graph) -> list[str]:
    """Names of the linear layers, in order of execution. A layer is called as its weight is."""
    return [
        node.name
        for node in graph.of_type("MatMul")
        if node.input[1] == node.name and (node.name == HEAD or node.name.startswith("layers."))
    ]


def linear(graph: Graph, name: str) -> NodeProto:
    return next(n for n in graph.of_type("MatMul") if n.name == name)


def kind_of(name: str) -> str:
    """`gate_up` of `layers.3.gate_up`."""
    return name.rsplit(".", 1)[-1]


def weight(graph: Graph, name: str) -> Array:
    values = graph.constant(name)
    assert values is not None, f"{name} is not a constant of the graph"
    return values.astype(np.float32)
