"""Constants become initializers, once each; identities disappear."""

from __future__ import annotations

from onnx import helper, numpy_helper

from export.graph import Graph


def lift_constants(graph: Graph) -> None:
    constants = graph.of_type("Constant")
    known: dict[tuple[object, ...], str] = {}
    for node in constants:
        values = numpy_helper.to_array(helper.get_attribute_value(node.attribute[0]))
        key = (str(values.dtype), values.shape, values.tobytes())
        name = known.setdefault(key, node.output[0])
        if name == node.output[0]:
            graph.add_initializer(name, values)
        else:
            graph.replace_uses(node.output[0], name)
    graph.remove(*constants)


def drop_identities(graph: Graph) -> None:
    for node in graph.of_type("Identity"):
        graph.replace_uses(node.output[0], node.input[0])
        graph.remove(node)
