"""Names: weights and nodes are called by what they are, not by where tracing found them."""

from __future__ import annotations

import numpy as np
from onnx import NodeProto

from export.graph import Graph, layer_of, scope_of

_LINEARS = {
    "qkv_proj": "qkv",
    "o_proj": "o",
    "gate_up_proj": "gate_up",
    "down_proj": "down",
    "lm_head": "lm_head",
    # What joins token and state in a draft head.
    "fc": "fc",
    "eh_proj": "fc",
    "input_proj": "fc",
}
_NORMS = {
    "input_layernorm": "attention_norm",
    "q_norm": "q_norm",
    "k_norm": "k_norm",
    "pre_feedforward_layernorm": "mlp_norm",
    "post_feedforward_layernorm": "mlp_post_norm",
    "norm": "final_norm",
}


def name_parts(graph: Graph) -> None:
    _name_linears(graph)
    _name_norms(graph)
    _name_attention(graph)
    for node in graph.of_type("Gather"):
        if node.input[0] in graph.initializers and scope_of(node) == "embed_tokens":
            _own_initializer(graph, node, 0, "embedding")
            node.name = "embedding"


def _name_linears(graph: Graph) -> None:
    for node in graph.of_type("MatMul"):
        name = _LINEARS.get(scope_of(node))
        if name is not None and node.input[1] in graph.initializers:
            node.name = _in_layer(node, name)
            _own_initializer(graph, node, 1, node.name)
            _name_bias(graph, node)


def _name_bias(graph: Graph, linear: NodeProto) -> None:
    for reader in graph.consumers(linear.output[0]):
        for position, name in enumerate(reader.input):
            if reader.op_type == "Add" and name in graph.initializers:
                _own_initializer(graph, reader, position, f"{linear.name}_bias")


def _name_norms(graph: Graph) -> None:
    norms = graph.of_type("SimplifiedLayerNormalization", "SkipSimplifiedLayerNormalization")
    # Llama's second norm and Gemma's post-norm share a name; Gemma also has a norm before the MLP.
    sandwich = any(scope_of(node) == "pre_feedforward_layernorm" for node in norms)
    after = {"post_attention_layernorm": "attention_post_norm" if sandwich else "mlp_norm"}
    for node in norms:
        name = {**_NORMS, **after}.get(scope_of(node), scope_of(node))
        node.name = _in_layer(node, name)
        _own_initializer(graph, node, len(node.input) - 1, node.name)


def _name_attention(graph: Graph) -> None:
    tables: dict[bytes, str] = {}
    for node in graph.of_type("GroupQueryAttention"):
        node.name = _in_layer(node, "attention.0")
        for position, part in ((7, "cos"), (8, "sin")):
            if len(node.input) <= position or not node.input[position]:
                continue
            values = graph.constant(node.input[position])
            assert values is not None
            known = tables.setdefault(values.tobytes(), f"rotary.{len(tables) // 2}.{part}")
            if known not in graph.initializers:
                graph.add_initializer(known, values)
            graph.set_input(node, position, known)


def _in_layer(node: NodeProto, name: str) -> str:
    layer = layer_of(node)
    return name if layer is None else f"layers.{layer}.{name}"


def _own_initializer(graph: Graph, node: NodeProto, position: int, name: str) -> None:
    """The node reads its own weight, called `name`: tracing shares weights that are equal."""
    values = graph.constant(node.input[position])
    assert values is not None, f"{name} is not a constant"
    if node.input[position] != name:
        graph.add_initializer(name, np.asarray(values))
        graph.set_input(node, position, name)
