"""Attention reads q, k and v packed where nothing lies between it and the linear layer."""

from __future__ import annotations

from export.graph import Graph


def pack_attention(graph: Graph) -> None:
    for node in graph.of_type("GroupQueryAttention"):
        split = graph.producer(node.input[0])
        if split is None or split.op_type != "Split":
            continue
        if list(node.input[:3]) == list(split.output):
            for position, name in enumerate((split.input[0], "", "")):
                graph.set_input(node, position, name)
    graph.sweep()
