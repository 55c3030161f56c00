"""fp16 for CUDA: weights, activations and K/V in half precision, the head in fp32."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import NodeProto, TensorProto

from export.graph import Graph

HEAD = "lm_head"
_LARGEST = float(np.finfo(np.float16).max)


def to_half(model: onnx.ModelProto) -> onnx.ModelProto:
    """A graph of `model` for CUDA. `logits` and what follows from them stay float32."""
    half = onnx.ModelProto()
    half.CopyFrom(model)
    graph = Graph(half)
    exact = _cast_after_head(graph)
    for name, tensor in list(graph.initializers.items()):
        readers = {id(node) for node in graph.consumers(name)}
        if tensor.data_type == TensorProto.FLOAT and not readers <= exact:
            values = graph.constant(name)
            assert values is not None
            assert not readers & exact, f"{name} is read in both precisions"
            graph.add_initializer(name, np.clip(values, -_LARGEST, _LARGEST).astype(np.float16))
    graph.finish()
    for value in (*half.graph.input, *half.graph.output):
        if value.name.startswith(("past.", "present.")):
            value.type.tensor_type.elem_type = TensorProto.FLOAT16
    return half


def _cast_after_head(graph: Graph) -> set[int]:
    """Cast what the LM head computes; return the nodes behind the cast, which stay float32."""
    # Quantisation renames the head's weight but keeps the beginning.
    head = next(
        node
        for node in graph.nodes
        if any(name in graph.initializers and name.startswith(HEAD) for name in node.input)
    )
    wide = f"{head.output[0]}/float32"
    graph.replace_uses(head.output[0], wide)
    cast = graph.add("Cast", [head.output[0]], [wide], name=f"{HEAD}/float32", to=TensorProto.FLOAT)
    behind: set[int] = set()
    waiting: list[NodeProto] = [cast]
    while waiting:
        for output in waiting.pop().output:
            for reader in graph.consumers(output):
                if id(reader) not in behind:
                    behind.add(id(reader))
                    waiting.append(reader)
    return behind
