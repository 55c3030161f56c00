"""Linear layers that read the same input become one, followed by a split."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto, numpy_helper

from export.graph import Graph, layer_of, scope_of

_GROUPS = {
    "qkv": ("q_proj", "k_proj", "v_proj"),
    "gate_up": ("gate_proj", "up_proj"),
}


def slices_to_splits(graph: Graph) -> None:
    """Slices that cover the last axis of one linear layer without gaps become one split."""
    for linear in graph.of_type("MatMul"):
        slices = [n for n in graph.consumers(linear.output[0]) if n.op_type == "Slice"]
        if len(slices) < 2 or len(slices) != len(graph.consumers(linear.output[0])):
            continue
        width = int(graph.initializers[linear.input[1]].dims[1])
        spans = sorted((*_span(graph, node, width), index) for index, node in enumerate(slices))
        edges = [0, *(end for _, end, _ in spans)]
        if edges[-1] != width or [begin for begin, _, _ in spans] != edges[:-1]:
            continue
        outputs = [slices[index].output[0] for _, _, index in spans]
        sizes = [end - begin for begin, end, _ in spans]
        graph.remove(*slices)
        _add_split(graph, linear.output[0], outputs, sizes, f"{linear.name}/Split")


def _span(graph: Graph, node: NodeProto, width: int) -> tuple[int, int]:
    begin, end, axes = (graph.constant(name) for name in node.input[1:4])
    if begin is None or end is None or axes is None or int(axes[0]) not in (-1, 2):
        return 0, 0
    return int(begin[0]), min(int(end[0]), width)


def merge_linears(graph: Graph) -> None:
    """One MatMul for q, k, v and one for gate and up; weights are concatenated exactly."""
    linears = graph.of_type("MatMul")
    for name, scopes in _GROUPS.items():
        for layer in sorted({layer for layer in map(layer_of, linears) if layer is not None}):
            found = {scope_of(n): n for n in linears if layer_of(n) == layer}
            group = [found[scope] for scope in scopes if scope in found]
            if len(group) == len(scopes) and len({n.input[0] for n in group}) == 1:
                _merge(graph, group, f"layers.{layer}.{name}")


def _merge(graph: Graph, group: Sequence[NodeProto], name: str) -> None:
    weights = [numpy_helper.to_array(graph.initializers[node.input[1]]) for node in group]
    biases = [_bias(graph, node) for node in group]
    source = group[0].input[0]
    ends = [bias or node for bias, node in zip(biases, group, strict=True)]
    outputs = [node.output[0] for node in ends]
    sizes = [int(weight.shape[1]) for weight in weights]
    merged = f"{name}/MatMul_output_0"
    graph.add_initializer(name, np.concatenate(weights, axis=1))
    values = [_bias_values(graph, bias) for bias in biases]
    graph.remove(*group, *(bias for bias in biases if bias is not None))
    graph.add("MatMul", [source, name], [merged], name=name)
    if any(bias is not None for bias in values):
        filled = [
            np.zeros(size, np.float32) if bias is None else bias
            for bias, size in zip(values, sizes, strict=True)
        ]
        graph.add_initializer(f"{name}_bias", np.concatenate(filled))
        graph.add("Add", [merged, f"{name}_bias"], [f"{name}/Add_output_0"], name=f"{name}/Add")
        merged = f"{name}/Add_output_0"
    _add_split(graph, merged, outputs, sizes, f"{name}/Split")


def _bias(graph: Graph, linear: NodeProto) -> NodeProto | None:
    readers = graph.consumers(linear.output[0])
    if len(readers) != 1 or readers[0].op_type != "Add":
        return None
    return readers[0] if any(i in graph.initializers for i in readers[0].input) else None


def _bias_values(graph: Graph, bias: NodeProto | None) -> NDArray[Any] | None:
    if bias is None:
        return None
    return next(v for v in (graph.constant(i) for i in bias.input) if v is not None)


def _add_split(
    graph: Graph, source: str, outputs: Sequence[str], sizes: Sequence[int], name: str
) -> None:
    sizes_name = graph.add_initializer(f"{name}/sizes", np.array(sizes, np.int64))
    graph.add("Split", [source, sizes_name], outputs, name=name, axis=2)
