"""Makes a package deeper: its second layer is repeated, each time with weights of its own place.

A model of random weights is exported with two layers, so that its export takes minutes and a
fraction of the memory; what a run of it costs is settled here. The layers must be alike.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import onnx
from onnx import NodeProto, TensorProto, ValueInfoProto

from export.writer import ALIGNMENT, save_graph
from models.package import MANIFEST, file_entry, load_package, write_manifest

EXPORTED = 2
"""Layers of the package that is made deeper; the last one is repeated."""

_LAYER = re.compile(r"(?<![\w.])(/model/layers\.|layers\.|past\.|present\.)(\d+)(?=[./])")

Places = Mapping[tuple[str, int], int]
"""Offsets in the file of weights, by the name of the second layer's tensor and the new layer."""


def deepen(directory: Path, layers: int) -> None:
    """Give the package in `directory`, of `EXPORTED` layers, so many."""
    manifest = load_package(directory).manifest
    target = manifest.target
    names = [*target.graphs.values(), *target.tree_graphs.values()]
    first = onnx.load(str(directory / names[0]), load_external_data=False)
    places = _repeat_weights(first.graph.initializer, directory / target.weights, layers)
    for name in names:
        graph = onnx.load(str(directory / name), load_external_data=False)
        save_graph(deeper(graph, layers, places), directory / name)
    files = [path for path in sorted(directory.iterdir()) if path.name != MANIFEST]
    write_manifest(
        directory,
        dataclasses.replace(
            manifest,
            target=dataclasses.replace(target, layers=layers),
            files={path.name: file_entry(path) for path in files},
            # They were measured on two layers.
            parity={},
            quality={},
            settings={**manifest.settings, "repeated_layers": str(layers - 1)},
        ),
    )


def deeper(model: onnx.ModelProto, layers: int, places: Places) -> onnx.ModelProto:
    """`model` with its second layer `layers - 1` times, one behind the other."""
    graph = model.graph
    made = {name for node in graph.node for name in node.output}
    template = [node for node in graph.node if _is_second(node.name)]
    begin = next(at for at, node in enumerate(graph.node) if _is_second(node.name))
    others = [_behind(n, layers - EXPORTED, made) for n in graph.node if not _is_second(n.name)]
    repeated = [_moved(each, by, made) for by in range(layers - 1) for each in template]
    nodes = [*others[:begin], *repeated, *others[begin:]]
    weights = [
        _placed(each, layer, places)
        for each in graph.initializer
        for layer in (range(1, layers) if _is_second(each.name) else (0,))
    ]
    deep = onnx.helper.make_model(
        onnx.helper.make_graph(
            nodes, graph.name, _ports(graph.input, layers), _ports(graph.output, layers), weights
        ),
        opset_imports=list(model.opset_import),
    )
    deep.ir_version = model.ir_version
    deep.metadata_props.extend(model.metadata_props)
    return deep


def _is_second(name: str) -> bool:
    found = _LAYER.search(name)
    return found is not None and int(found[2]) == 1


def _shifted(name: str, by: int) -> str:
    """`name` of the same thing `by` layers further on."""
    return _LAYER.sub(lambda found: f"{found[1]}{int(found[2]) + by}", name)


def _moved(node: NodeProto, by: int, made: set[str]) -> NodeProto:
    """A node of the second layer, `by` layers further on. What no node makes and is not the
    layer's own, all layers share."""
    copy = NodeProto()
    copy.CopyFrom(node)
    copy.name = _shifted(node.name, by)
    for index, name in enumerate(node.input):
        if name in made or _is_second(name):
            copy.input[index] = _shifted(name, by)
    for index, name in enumerate(node.output):
        copy.output[index] = _shifted(name, by)
    return copy


def _behind(node: NodeProto, by: int, made: set[str]) -> NodeProto:
    """A node outside the second layer. What it reads or makes of that is the last layer's."""
    copy = NodeProto()
    copy.CopyFrom(node)
    for names, changed in ((node.input, copy.input), (node.output, copy.output)):
        for index, name in enumerate(names):
            if name in made and _is_second(name):
                changed[index] = _shifted(name, by)
    return copy


def _ports(ports: Iterable[ValueInfoProto], layers: int) -> list[ValueInfoProto]:
    found: list[ValueInfoProto] = []
    for port in ports:
        for layer in range(1, layers) if _is_second(port.name) else (1,):
            copy = ValueInfoProto()
            copy.CopyFrom(port)
            copy.name = _shifted(port.name, layer - 1)
            found.append(copy)
    return found


def _placed(tensor: TensorProto, layer: int, places: Places) -> TensorProto:
    if layer < 1:
        return tensor
    copy = TensorProto()
    copy.CopyFrom(tensor)
    copy.name = _shifted(tensor.name, layer - 1)
    for entry in copy.external_data:
        if entry.key == "offset" and layer > 1:
            entry.value = str(places[tensor.name, layer])
    return copy


def _repeat_weights(tensors: Sequence[TensorProto], weights: Path, layers: int) -> Places:
    """Append the second layer's tensors to the file of `weights`, for each further layer."""
    places: dict[tuple[str, int], int] = {}
    own = [tensor for tensor in tensors if _is_second(tensor.name) and tensor.external_data]
    with weights.open("r+b") as stream:
        for tensor in own:
            entries = {entry.key: entry.value for entry in tensor.external_data}
            stream.seek(int(entries["offset"]))
            content = stream.read(int(entries["length"]))
            stream.seek(0, 2)
            for layer in range(EXPORTED, layers):
                stream.write(b"\0" * (-stream.tell() % ALIGNMENT))
                places[tensor.name, layer] = stream.tell()
                stream.write(content)
    return places
