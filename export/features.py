"""Features: what learned drafters read of the target, as outputs of its graphs.

`hidden` [N, h] is the last hidden state, behind the final norm. `taps` [N, k * h] is the residual
stream entering each of k layers, side by side. Both are in the checkpoint's own basis, in the type
of the K/V, for every token of the run. `export.rows` hands each row its own tokens' part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper

from export.graph import Graph
from export.quantization.basis import Basis, noted_basis
from export.quantization.rotation import Matrix
from export.rows import FEATURES
from models.package import FEATURE_INDEX, KEPT

HIDDEN, TAPS = FEATURES
_FINAL_NORM = "final_norm"
_ATTENTION = "GroupQueryAttention"
_SKIP_SUM = 3
_PLACES = (KEPT.rstrip("."), FEATURE_INDEX)


@dataclass(frozen=True, slots=True)
class Features:
    """A set of features. Layer l of `tap_layers` is the stream that enters layer l.

    As many layers as the target has means behind the last one, before the final norm.
    """

    hidden: bool = False
    tap_layers: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return self.hidden or bool(self.tap_layers)

    def __or__(self, other: Features) -> Features:
        """Both; of two lists of taps the same is meant."""
        assert not self.tap_layers or other.tap_layers in ((), self.tap_layers), "one set of taps"
        return Features(self.hidden or other.hidden, self.tap_layers or other.tap_layers)

    def widths(self, hidden_size: int) -> dict[str, int]:
        widths = {HIDDEN: hidden_size} if self.hidden else {}
        return widths | ({TAPS: len(self.tap_layers) * hidden_size} if self.tap_layers else {})


def needed(reads: Sequence[str | None], tap_layers: Sequence[int]) -> Features:
    """What drafters need that read these features."""
    assert set(reads) <= {None, *FEATURES}, reads
    return Features(HIDDEN in reads, tuple(tap_layers) if TAPS in reads else ())


def default_tap_layers(layers: int) -> tuple[int, int, int]:
    """Low, middle and high, where a head does not say: what EAGLE-3 heads are trained on."""
    return min(2, layers), layers // 2, max(layers - 3, 0)


def add_features(model: onnx.ModelProto, features: Features) -> onnx.ModelProto:
    """A copy of the graph for one row, canonical or stored, with `features` as further outputs.

    Large initializers may be external already; those that are new are not.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    _declare(copy, features)
    graph, basis = Graph(copy), noted_basis(copy)
    if features.hidden:
        _add_hidden(graph, basis)
    if features.tap_layers:
        _add_taps(graph, features.tap_layers, basis)
    graph.finish()
    return copy


def add_taps(model: onnx.ModelProto, layers: Sequence[int]) -> onnx.ModelProto:
    return add_features(model, Features(tap_layers=tuple(layers)))


def without_features(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of the graph for one row, as it was before any features were added."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    kept = [output for output in copy.graph.output if output.name.split(".")[0] not in FEATURES]
    del copy.graph.output[:]
    copy.graph.output.extend(kept)
    # Where they are written in place they have inputs too.
    inputs = [each for each in copy.graph.input if each.name.split(".")[0] not in _PLACES]
    del copy.graph.input[:]
    copy.graph.input.extend(inputs)
    Graph(copy).finish()
    return copy


def _add_hidden(graph: Graph, basis: Basis | None) -> None:
    _add_flat(
        graph,
        HIDDEN,
        _norm(graph, _FINAL_NORM).output[0],
        _hidden_size(graph),
        None if basis is None else _matrix(graph, HIDDEN, basis.hidden_back()),
    )


def _add_taps(graph: Graph, layers: Sequence[int], basis: Basis | None) -> None:
    count = len(graph.of_type(_ATTENTION))
    assert all(0 <= layer <= count for layer in layers), f"{layers} of {count} layers"
    streams = [_stream_entering(graph, layer, count) for layer in layers]
    source = streams[0]
    if len(streams) > 1:
        source = f"{TAPS}/side_by_side"
        graph.add("Concat", streams, [source], name=source, axis=2)
    turn = None if basis is None else _matrix(graph, TAPS, basis.stream_back())
    _add_flat(graph, TAPS, source, len(layers) * _hidden_size(graph), turn)


def _add_flat(graph: Graph, name: str, source: str, width: int, turn: str | None) -> None:
    """[1, N, width] becomes [N, width], every `hidden` columns multiplied by `turn`."""
    if turn is None:
        graph.add("Reshape", [source, _shape(graph, name, width)], [name], name=name)
        return
    parts, turned = f"{name}/parts", f"{name}/turned"
    graph.add("Reshape", [source, _shape(graph, parts, _hidden_size(graph))], [parts], name=parts)
    graph.add("MatMul", [parts, turn], [turned], name=turned)
    graph.add("Reshape", [turned, _shape(graph, name, width)], [name], name=name)


def _stream_entering(graph: Graph, layer: int, count: int) -> str:
    """The sum that the layer's first norm reads, or makes itself."""
    name = _FINAL_NORM if layer == count else f"layers.{layer}.attention_norm"
    norm = _norm(graph, name)
    if norm.op_type == "SimplifiedLayerNormalization":
        return str(norm.input[0])
    if len(norm.output) > _SKIP_SUM and norm.output[_SKIP_SUM]:
        return str(norm.output[_SKIP_SUM])
    # Only the last norm's sum goes unused.
    with_sum = [*norm.output, *[""] * (_SKIP_SUM - len(norm.output)), f"{name}/sum"]
    graph.remove(norm)
    attributes = {a.name: helper.get_attribute_value(a) for a in norm.attribute}
    graph.add(norm.op_type, norm.input, with_sum, name, norm.domain, **attributes)
    return f"{name}/sum"


def _norm(graph: Graph, name: str) -> NodeProto:
    return next(node for node in graph.nodes if node.name == name)


def _hidden_size(graph: Graph) -> int:
    return int(graph.initializers[_FINAL_NORM].dims[0])


def _shape(graph: Graph, name: str, width: int) -> str:
    return graph.add_initializer(f"{name}/shape", np.array([-1, width], np.int64))


def _matrix(graph: Graph, name: str, values: Matrix) -> str:
    half = _type(graph.model) == TensorProto.FLOAT16
    return graph.add_initializer(f"{name}/back", values.astype(np.float16 if half else np.float32))


def _type(model: onnx.ModelProto) -> int:
    """Of the K/V, which is that of all activations."""
    past = next(value for value in model.graph.input if value.name.startswith("past."))
    return int(past.type.tensor_type.elem_type)


def _declare(model: onnx.ModelProto, features: Features) -> None:
    size = next(int(i.dims[0]) for i in model.graph.initializer if i.name == _FINAL_NORM)
    for name, width in features.widths(size).items():
        value = helper.make_tensor_value_info(name, _type(model), ["tokens", width])
        model.graph.output.append(value)
