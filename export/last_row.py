"""What follows the last attention of a step, for the last token alone.

Only its next state and its logits are read of the first step of a draft; the other tokens leave
nothing but their K/V. For a head of one layer that is most of the work of a long prompt.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import NodeProto, helper, numpy_helper

LAST = "last"
_SAME_RANK = frozenset(
    [
        *("Abs", "Add", "Cast", "Div", "Mul", "Sub", "Tanh", "Sigmoid", "QuickGelu", "FastGelu"),
        *("Concat", "ReduceMax", "Slice", "Split", "Transpose", "QuantizeLinear"),
        *("MatMul", "MatMulIntegerToFloat", "MatMulNBits"),
        *("SimplifiedLayerNormalization", "SkipSimplifiedLayerNormalization"),
    ]
)


def last_index() -> onnx.TensorProto:
    return numpy_helper.from_array(np.array([-1], np.int64), LAST)


def only_last(model: onnx.ModelProto) -> onnx.ModelProto:
    """`model` with one next state and the logits of one token, whatever `logits_index` says.

    The model itself where it holds an operator that is not known here.
    """
    nodes = list(model.graph.node)
    attending = _ancestors(nodes)
    given = {value.name for value in model.graph.input} - {"logits_index"}
    given -= {tensor.name for tensor in model.graph.initializer}
    made = given.union(*(nodes[index].output for index in attending))
    rest = [node for index, node in enumerate(nodes) if index not in attending]
    crossing = sorted(made & {name for node in rest for name in node.input if name})
    axes = _axes(model, crossing)
    if axes is None:
        return model
    picked = {name: f"{name}/{LAST}" for name in crossing}
    gathers = [
        helper.make_node("Gather", [name, LAST], [picked[name]], name=picked[name], axis=axes[name])
        for name in crossing
    ]
    first = [node for index, node in enumerate(nodes) if index in attending]
    cut = onnx.ModelProto()
    cut.CopyFrom(model)
    del cut.graph.node[:]
    cut.graph.node.extend([*first, *gathers, *(_reading(node, picked) for node in rest)])
    cut.graph.initializer.append(last_index())
    return cut


def _ancestors(nodes: list[NodeProto]) -> set[int]:
    """Which nodes some attention depends on, the attention included."""
    producers = {name: index for index, node in enumerate(nodes) for name in node.output if name}
    waiting = [i for i, node in enumerate(nodes) if node.op_type == "GroupQueryAttention"]
    found: set[int] = set()
    while waiting:
        index = waiting.pop()
        if index not in found:
            found.add(index)
            waiting += [producers[name] for name in nodes[index].input if name in producers]
    return found


def _axes(model: onnx.ModelProto, names: list[str]) -> dict[str, int] | None:
    """Along which axis the tokens of each tensor lie: [1, N, width] or [N, width]."""
    ranks = _ranks(model)
    axes = {name: ranks.get(name, 0) - 2 for name in names}
    return axes if all(axis in (0, 1) for axis in axes.values()) else None


def _ranks(model: onnx.ModelProto) -> dict[str, int]:
    """Of activations, as far as the operators are known. What is not of width `hidden` has none."""
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    ranks = {value.name: 2 for value in model.graph.input if value.name == "states"}
    for node in model.graph.node:
        source = next((name for name in node.input if name in ranks), None)
        rank = None
        if node.op_type == "GroupQueryAttention":
            ranks[node.output[0]] = 3
            continue
        if node.op_type == "Gather" and node.input[1] == "input_ids" and node.input[0] in tensors:
            rank = 3
        elif node.op_type == "Unsqueeze" and source and node.input[1] in tensors:
            rank = ranks[source] + int(tensors[node.input[1]].dims[0])
        elif node.op_type == "Reshape" and node.input[1] in tensors:
            rank = int(tensors[node.input[1]].dims[0])
        elif node.op_type in _SAME_RANK and source:
            rank = ranks[source]
        if rank is not None:
            ranks.update({name: rank for name in node.output if name})
    return ranks


def _reading(node: NodeProto, renamed: dict[str, str]) -> NodeProto:
    copied = NodeProto()
    copied.CopyFrom(node)
    for position, name in enumerate(node.input):
        copied.input[position] = renamed.get(name, name)
    return copied
