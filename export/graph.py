"""A small editor for ONNX graphs: who makes a tensor, who reads it, and replacing either."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto, helper, numpy_helper

CONTRIB = "com.microsoft"
_LAYER = re.compile(r"/layers\.(\d+)/")


class Graph:
    """Edits `model` in place. Node order is free until `finish` sorts it."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model = model
        self.nodes: list[NodeProto] = list(model.graph.node)
        self.initializers: dict[str, TensorProto] = {i.name: i for i in model.graph.initializer}
        self._index()

    def finish(self) -> None:
        """Drop what nothing reads, sort the nodes and write both back into the model."""
        self.sweep()
        nodes, initializers = self._sorted(), list(self.initializers.values())
        del self.model.graph.node[:]
        del self.model.graph.initializer[:]
        del self.model.graph.value_info[:]
        self.model.graph.node.extend(nodes)
        self.model.graph.initializer.extend(initializers)

    def producer(self, name: str) -> NodeProto | None:
        return self._producers.get(name)

    def consumers(self, name: str) -> Sequence[NodeProto]:
        return self._consumers.get(name, ())

    def of_type(self, *kinds: str) -> list[NodeProto]:
        return [node for node in self.nodes if node.op_type in kinds]

    def is_output(self, name: str) -> bool:
        return any(output.name == name for output in self.model.graph.output)

    def constant(self, name: str) -> NDArray[np.generic] | None:
        tensor = self.initializers.get(name)
        return None if tensor is None else numpy_helper.to_array(tensor)

    def add_initializer(self, name: str, values: NDArray[np.generic]) -> str:
        self.initializers[name] = numpy_helper.from_array(np.asarray(values, order="C"), name)
        return name

    def add(
        self,
        kind: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        name: str,
        domain: str = "",
        **attributes: int | float | str,
    ) -> NodeProto:
        node = helper.make_node(kind, inputs, outputs, name=name, domain=domain, **attributes)
        self.nodes.append(node)
        self._index()
        return node

    def remove(self, *nodes: NodeProto) -> None:
        gone = {id(node) for node in nodes}
        self.nodes = [node for node in self.nodes if id(node) not in gone]
        self._index()

    def replace_uses(self, old: str, new: str) -> None:
        """Every reader of `old` reads `new`. `old` must not be an output of the graph."""
        for node in self.consumers(old):
            for position, name in enumerate(node.input):
                if name == old:
                    node.input[position] = new
        self._index()

    def set_input(self, node: NodeProto, position: int, name: str) -> None:
        node.input[position] = name
        self._index()

    def sweep(self) -> None:
        """Remove nodes and initializers that no output depends on."""
        needed = {output.name for output in self.model.graph.output}
        kept: list[NodeProto] = []
        for node in reversed(self._sorted()):
            if any(name in needed for name in node.output):
                kept.append(node)
                needed.update(node.input)
        self.nodes = kept[::-1]
        self.initializers = {k: v for k, v in self.initializers.items() if k in needed}
        self._index()

    def _index(self) -> None:
        self._producers = {name: node for node in self.nodes for name in node.output if name}
        self._consumers: dict[str, list[NodeProto]] = {}
        for node in self.nodes:
            for name in dict.fromkeys(node.input):
                self._consumers.setdefault(name, []).append(node)

    def _sorted(self) -> list[NodeProto]:
        ordered: list[NodeProto] = []
        waiting = {id(node): 0 for node in self.nodes}
        for node in self.nodes:
            waiting[id(node)] = sum(name in self._producers for name in dict.fromkeys(node.input))
        ready = [node for node in self.nodes if not waiting[id(node)]][::-1]
        while ready:
            node = ready.pop()
            ordered.append(node)
            for output in node.output:
                for reader in reversed(self._consumers.get(output, [])) if output else ():
                    waiting[id(reader)] -= 1
                    if not waiting[id(reader)]:
                        ready.append(reader)
        assert len(ordered) == len(self.nodes), "the graph has a cycle"
        return ordered


def attribute(node: NodeProto, name: str, default: int | float) -> int | float:
    for candidate in node.attribute:
        if candidate.name == name:
            value: int | float = helper.get_attribute_value(candidate)
            return value
    return default


def layer_of(node: NodeProto) -> int | None:
    """The decoder layer a traced node belongs to, by its scope."""
    found = _LAYER.search(node.name)
    return int(found.group(1)) if found else None


def scope_of(node: NodeProto) -> str:
    """The name of the module that made a traced node: `q_proj` of `/model/.../q_proj/MatMul`."""
    parts = node.name.split("/")
    return parts[-2] if len(parts) > 1 else ""
