"""The graph that moves the K/V of an accepted path together, for slots on a device.

Per buffer the rows at `sources` [n] are gathered and scattered to `destinations` [1, kv_heads, n,
3], the indices (0, head, position) of each. Present and past are bound to the same memory: what is
not moved is not touched. Features, [capacity, width] each, are moved with it: `feature.hidden`
becomes `moved.hidden`, likewise `feature.taps`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnx import NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from export.parity import failed
from export.rows import FEATURES
from models.compaction import scatter_indices

# A path that moves tokens onto the sources of others.
_SOURCES, _DESTINATIONS = (5, 6, 9, 12), (4, 5, 6, 7)
_CAPACITY = 16
_ENDS = ("begin", "end", "axes")


def compact_graph(single: onnx.ModelProto) -> onnx.ModelProto:
    """For the buffers and the features of the graph for one row."""
    past = [value for value in single.graph.input if value.name.startswith("past.")]
    present = [value for value in single.graph.output if value.name.startswith("present.")]
    kv_heads = past[0].type.tensor_type.shape.dim[1].dim_value
    features, moved_features = _features(single)
    nodes = []
    for value in past:
        moved = f"{value.name}/moved"
        result = value.name.replace("past.", "present.")
        nodes.append(helper.make_node("Gather", [value.name, "sources"], [moved], axis=2))
        nodes.append(helper.make_node("ScatterND", [value.name, "destinations", moved], [result]))
    nodes += _moves([value.name for value in features])
    index = TensorProto.INT64
    inputs = [
        helper.make_tensor_value_info("sources", index, ["moved"]),
        helper.make_tensor_value_info("destinations", index, [1, kv_heads, "moved", 3]),
        *past,
        *features,
    ]
    outputs = [*present, *moved_features]
    graph = helper.make_graph(nodes, "target.compact", inputs, outputs, _constants(features))
    model = helper.make_model(
        graph, opset_imports=[known for known in single.opset_import if not known.domain]
    )
    model.ir_version = single.ir_version
    return model


def _features(single: onnx.ModelProto) -> tuple[list[ValueInfoProto], list[ValueInfoProto]]:
    """The inputs and outputs for the features that the graph gives out."""
    pairs = []
    for value in single.graph.output:
        if value.name in FEATURES:
            kind = value.type.tensor_type
            shape = ["capacity", kind.shape.dim[1].dim_value]
            pairs.append(
                tuple(
                    helper.make_tensor_value_info(f"{name}.{value.name}", kind.elem_type, shape)
                    for name in ("feature", "moved")
                )
            )
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def _moves(features: Sequence[str]) -> Iterator[NodeProto]:
    if features:
        # Of (0, head, position) the positions, which are the same for every head.
        yield helper.make_node("Slice", ["destinations", *_ENDS], ["positions"])
        yield helper.make_node("Reshape", ["positions", "column"], ["places"])
    for name in features:
        moved, result = f"{name}/moved", name.replace("feature.", "moved.")
        yield helper.make_node("Gather", [name, "sources"], [moved], axis=0)
        yield helper.make_node("ScatterND", [name, "places", moved], [result])


def _constants(features: Sequence[ValueInfoProto]) -> list[TensorProto]:
    values = {"begin": [0, 2], "end": [1, 3], "axes": [1, 3], "column": [-1, 1]}
    return [
        numpy_helper.from_array(np.array(value, np.int64), name)
        for name, value in values.items()
        if features
    ]


def check_compact(path: Path) -> None:
    """Run the stored graph on random buffers, bound in place on the CPU, and compare with numpy."""
    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    random, buffers = np.random.default_rng(0), []
    kv_heads = 0
    for value in session.get_inputs():
        if not value.name.startswith(("past.", "feature.")):
            continue
        shape = tuple(_CAPACITY if isinstance(size, str) else size for size in value.shape)
        kv_heads = shape[1] if len(shape) == 4 else kv_heads
        kind = np.float16 if value.type == "tensor(float16)" else np.float32
        buffers.append(random.standard_normal(shape).astype(kind))
        bound = ort.OrtValue.ortvalue_from_numpy(buffers[-1])
        binding.bind_ortvalue_input(value.name, bound)
        result = value.name.replace("past.", "present.").replace("feature.", "moved.")
        binding.bind_ortvalue_output(result, bound)
    sources, destinations = np.array(_SOURCES), np.array(_DESTINATIONS)
    expected = [buffer.copy() for buffer in buffers]
    for buffer in expected:
        buffer[..., destinations, :] = buffer[..., sources, :]
    binding.bind_cpu_input("sources", sources)
    binding.bind_cpu_input("destinations", scatter_indices(kv_heads, destinations))
    session.run_with_iobinding(binding)
    if any((one != other).any() for one, other in zip(buffers, expected, strict=True)):
        raise failed("the graph that compacts K/V moves something else", {})
