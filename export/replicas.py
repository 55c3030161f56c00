"""Copies of graphs, put together into one graph that shares their initializers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

Dims = Sequence[int | str]


class Replicas:
    """A graph under construction.

    Initializers are called as in the graphs that bring them, external or not: those of one name
    must be one tensor (`distinct` sees to it).
    """

    def __init__(self) -> None:
        self.inputs: list[ValueInfoProto] = []
        self.outputs: list[ValueInfoProto] = []
        self._nodes: list[NodeProto] = []
        self._initializers: dict[str, TensorProto] = {}

    def copy(
        self,
        model: onnx.ModelProto,
        prefix: str,
        feeds: Mapping[str, str],
        results: Mapping[str, str] | None = None,
    ) -> dict[str, str]:
        """Copy the nodes of `model`, which reads the tensors `feeds` as its inputs.

        Everything inside is called `prefix/...`, outputs as `results` says. Returns what each
        output of `model` is called.
        """
        graph = model.graph
        names = {tensor.name: tensor.name for tensor in graph.initializer}
        for tensor in graph.initializer:
            self._initializers.setdefault(tensor.name, tensor)
        missing = {value.name for value in graph.input} - names.keys() - feeds.keys()
        assert not missing, f"nothing feeds {sorted(missing)}"
        names.update(feeds)
        for output, name in (results or {}).items():
            assert output not in names, f"{output} is no result of a node"
            names[output] = name
        for node in graph.node:
            self._nodes.append(_renamed(node, prefix, names))
        return {value.name: names[value.name] for value in graph.output}

    def add(self, kind: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        """A node with one output, which is returned."""
        node = helper.make_node(kind, inputs, [output], name=output, **attributes)
        self._nodes.append(node)
        return output

    def add_several(
        self, kind: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any
    ) -> None:
        node = helper.make_node(kind, inputs, outputs, name=outputs[0], **attributes)
        self._nodes.append(node)

    def constant(self, name: str, values: NDArray[Any]) -> str:
        """Give the tensor `name`; a second time it must be the same."""
        if name not in self._initializers:
            array = np.asarray(values, order="C")
            self._initializers[name] = numpy_helper.from_array(array, name)
        return name

    def input(self, name: str, kind: int, shape: Dims) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, kind, shape))
        return name

    def output(self, name: str, kind: int, shape: Dims) -> None:
        self.outputs.append(helper.make_tensor_value_info(name, kind, shape))

    def build(self, name: str, like: onnx.ModelProto) -> onnx.ModelProto:
        """The graph, in the operator versions of `like`."""
        used = {source for node in self._nodes for source in node.input}
        initializers = [t for key, t in self._initializers.items() if key in used]
        graph = helper.make_graph(self._nodes, name, self.inputs, self.outputs, initializers)
        model = helper.make_model(graph, opset_imports=list(like.opset_import))
        model.ir_version = like.ir_version
        return model


def distinct(models: Sequence[onnx.ModelProto]) -> list[onnx.ModelProto]:
    """The models with initializers renamed where two of them mean different tensors by a name."""
    known: dict[str, TensorProto] = {}
    results = []
    for index, model in enumerate(models):
        renamed = {
            tensor.name: f"{tensor.name}/{index}"
            for tensor in model.graph.initializer
            if known.setdefault(tensor.name, tensor) != tensor
        }
        results.append(_with_initializers_renamed(model, renamed) if renamed else model)
    return results


def element_type(values: Iterable[ValueInfoProto], name: str) -> int:
    return int(_value(values, name).type.tensor_type.elem_type)


def dims(values: Iterable[ValueInfoProto], name: str) -> list[int]:
    """The shape, 0 where it is not fixed."""
    shape = _value(values, name).type.tensor_type.shape
    return [int(dim.dim_value) for dim in shape.dim]


def buffer(past: ValueInfoProto) -> tuple[int, Dims]:
    """Type and shape [1, kv_heads, capacity, head_dim] of a K/V buffer."""
    _, kv_heads, _, head_dim = dims([past], past.name)
    return element_type([past], past.name), [1, kv_heads, "capacity", head_dim]


def _value(values: Iterable[ValueInfoProto], name: str) -> ValueInfoProto:
    return next(value for value in values if value.name == name)


def _renamed(node: NodeProto, prefix: str, names: dict[str, str]) -> NodeProto:
    """A copy of the node. What it makes is entered into `names`."""
    assert not any(a.HasField("g") for a in node.attribute), f"{node.name} holds a graph"
    copied = NodeProto()
    copied.CopyFrom(node)
    copied.name = f"{prefix}/{node.name or node.output[0]}"
    for position, name in enumerate(node.input):
        copied.input[position] = names[name] if name else ""
    for position, name in enumerate(node.output):
        if name:
            copied.output[position] = names.setdefault(name, f"{prefix}/{name}")
    return copied


def _with_initializers_renamed(
    model: onnx.ModelProto, renamed: Mapping[str, str]
) -> onnx.ModelProto:
    copied = onnx.ModelProto()
    copied.CopyFrom(model)
    for tensor in copied.graph.initializer:
        tensor.name = renamed.get(tensor.name, tensor.name)
    for node in copied.graph.node:
        for position, name in enumerate(node.input):
            node.input[position] = renamed.get(name, name)
    return copied
