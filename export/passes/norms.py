"""RMSNorm as the runtime's kernels: alone, or fused with the residual sum before it."""

from __future__ import annotations

from collections.abc import Iterable

from export.graph import CONTRIB, Graph, attribute


def lower_norms(graph: Graph) -> None:
    """The traced operator carries a domain only because tracing asks for one."""
    for node in graph.of_type("SimplifiedLayerNormalization"):
        node.domain = ""


def fuse_residual_norms(graph: Graph) -> None:
    """Add followed by a norm becomes `SkipSimplifiedLayerNormalization`, sum kept as output 3."""
    for norm in graph.of_type("SimplifiedLayerNormalization"):
        total = graph.producer(norm.input[0])
        if total is None or total.op_type != "Add" or not _is_residual(graph, total.input):
            continue
        graph.remove(norm, total)
        graph.add(
            "SkipSimplifiedLayerNormalization",
            [*total.input, norm.input[1]],
            [norm.output[0], "", "", total.output[0]],
            name=norm.name,
            domain=CONTRIB,
            epsilon=attribute(norm, "epsilon", 1e-5),
        )


def _is_residual(graph: Graph, inputs: Iterable[str]) -> bool:
    return not any(name in graph.initializers for name in inputs)
