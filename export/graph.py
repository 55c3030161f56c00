"""A small editor for ONNX graphs: who makes a tensor, who reads it, and replacing either."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

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
        self.initializers: dict[str, TensorProto] = {i.name: i for i in model.graph.initializer}
        self._outputs = frozenset(output.name for output in model.graph.output)
        self._nodes: dict[int, NodeProto] = {}
        self._producers: dict[str, NodeProto] = {}
        self._readers: dict[str, dict[int, NodeProto]] = {}
        for node in model.graph.node:
            self._enter(node)

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

    def consumers(self, name: str) -> list[NodeProto]:
        return list(self._readers.get(name, {}).values())

    @property
    def nodes(self) -> list[NodeProto]:
        """All nodes, in no promised order."""
        return list(self._nodes.values())

    def of_type(self, *kinds: str) -> list[NodeProto]:
        return [node for node in self._nodes.values() if node.op_type in kinds]

    def is_output(self, name: str) -> bool:
        return name in self._outputs

    def constant(self, name: str) -> NDArray[Any] | None:
        tensor = self.initializers.get(name)
        return None if tensor is None else numpy_helper.to_array(tensor)

    def add_initializer(self, name: str, values: NDArray[Any]) -> str:
        self.initializers[name] = numpy_helper.from_array(np.asarray(values, order="C"), name)
        return name

    def add(
        self,
        kind: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        name: str,
        domain: str = "",
        **attributes: Any,
    ) -> NodeProto:
        node = helper.make_node(kind, inputs, outputs, name=name, domain=domain, **attributes)
        self._enter(node)
        return node

    def remove(self, *nodes: NodeProto) -> None:
        for node in nodes:
            del self._nodes[id(node)]
            for name in node.output:
                if self._producers.get(name) is node:
                    del self._producers[name]
            for name in set(node.input):
                self._readers[name].pop(id(node), None)

    def replace_uses(self, old: str, new: str) -> None:
        """Every reader of `old` reads `new`. `old` must not be an output of the graph."""
        assert old not in self._outputs, f"{old} is an output"
        for node in self.consumers(old):
            for position, name in enumerate(node.input):
                if name == old:
                    self.set_input(node, position, new)

    def set_input(self, node: NodeProto, position: int, name: str) -> None:
        before = node.input[position]
        node.input[position] = name
        if before not in node.input:
            self._readers[before].pop(id(node), None)
        self._readers.setdefault(name, {})[id(node)] = node

    def sweep(self) -> None:
        """Remove nodes and initializers that no output depends on."""
        needed = set(self._outputs)
        for node in reversed(self._sorted()):
            if any(name in needed for name in node.output):
                needed.update(filter(None, node.input))
            else:
                self.remove(node)
        self.initializers = {k: v for k, v in self.initializers.items() if k in needed}

    def _enter(self, node: NodeProto) -> None:
        self._nodes[id(node)] = node
        for name in node.output:
            if name:
                self._producers[name] = node
        for name in node.input:
            self._readers.setdefault(name, {})[id(node)] = node

    def _sorted(self) -> list[NodeProto]:
        ordered: list[NodeProto] = []
        nodes = list(self._nodes.values())
        waiting = {id(n): sum(name in self._producers for name in set(n.input)) for n in nodes}
        ready = [node for node in reversed(nodes) if not waiting[id(node)]]
        while ready:
            node = ready.pop()
            ordered.append(node)
            for output in filter(None, node.output):
                for reader in reversed(self.consumers(output)):
                    waiting[id(reader)] -= 1
                    if not waiting[id(reader)]:
                        ready.append(reader)
        assert len(ordered) == len(nodes), "the graph has a cycle"
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
