"""The graph that moves the K/V of an accepted path together, for slots on a device.

Per buffer the rows at `sources` [n] are gathered and scattered to `destinations` [1, kv_heads, n,
3], the indices (0, head, position) of each. Present and past are bound to the same memory: what is
not moved is not touched.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper

from export.parity import failed
from models.compaction import scatter_indices

# A path that moves tokens onto the sources of others.
_SOURCES, _DESTINATIONS = (5, 6, 9, 12), (4, 5, 6, 7)
_CAPACITY = 16


def compact_graph(single: onnx.ModelProto) -> onnx.ModelProto:
    """For the buffers of the graph for one row."""
    past = [value for value in single.graph.input if value.name.startswith("past.")]
    present = [value for value in single.graph.output if value.name.startswith("present.")]
    kv_heads = past[0].type.tensor_type.shape.dim[1].dim_value
    nodes = []
    for value in past:
        moved = f"{value.name}/moved"
        result = value.name.replace("past.", "present.")
        nodes.append(helper.make_node("Gather", [value.name, "sources"], [moved], axis=2))
        nodes.append(helper.make_node("ScatterND", [value.name, "destinations", moved], [result]))
    index = TensorProto.INT64
    inputs = [
        helper.make_tensor_value_info("sources", index, ["moved"]),
        helper.make_tensor_value_info("destinations", index, [1, kv_heads, "moved", 3]),
        *past,
    ]
    graph = helper.make_graph(nodes, "target.compact", inputs, present)
    model = helper.make_model(
        graph, opset_imports=[known for known in single.opset_import if not known.domain]
    )
    model.ir_version = single.ir_version
    return model


def check_compact(path: Path) -> None:
    """Run the stored graph on random buffers, bound in place on the CPU, and compare with numpy."""
    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    random, buffers = np.random.default_rng(0), []
    for value in (known for known in session.get_inputs() if known.name.startswith("past.")):
        shape = (1, value.shape[1], _CAPACITY, value.shape[3])
        kind = np.float16 if value.type == "tensor(float16)" else np.float32
        buffers.append(random.standard_normal(shape).astype(kind))
        bound = ort.OrtValue.ortvalue_from_numpy(buffers[-1])
        binding.bind_ortvalue_input(value.name, bound)
        binding.bind_ortvalue_output(value.name.replace("past.", "present."), bound)
    sources, destinations = np.array(_SOURCES), np.array(_DESTINATIONS)
    expected = [buffer.copy() for buffer in buffers]
    for buffer in expected:
        buffer[:, :, destinations] = buffer[:, :, sources]
    binding.bind_cpu_input("sources", sources)
    binding.bind_cpu_input("destinations", scatter_indices(buffers[0].shape[1], destinations))
    session.run_with_iobinding(binding)
    if any((one != other).any() for one, other in zip(buffers, expected, strict=True)):
        raise failed("the graph that compacts K/V moves something else", {})
