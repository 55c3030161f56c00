"""A small random Llama-like graph in the canonical form, for tests of quantisation."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from export.graph import CONTRIB
from export.quantization import CalibrationContext
from export.quantization.scratch import on_disk
from export.runner import RowStep

LAYERS, HEADS, KV_HEADS, HEAD_DIM, HIDDEN, INNER, VOCAB = 2, 4, 2, 16, 48, 96, 131
CONTEXT = 160


class _Builder:
    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []

    def constant(self, name: str, values: Any) -> str:
        self.initializers.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def weight(self, name: str, *shape: int) -> str:
        values = self.rng.standard_normal(shape) / np.sqrt(shape[0])
        values[::7] *= 2.0  # channels of unequal size, as real models have them
        return self.constant(name, values.astype(np.float32))

    def add(self, kind: str, inputs: list[str], outputs: list[str], **options: Any) -> str:
        options.setdefault("name", outputs[0])
        self.nodes.append(helper.make_node(kind, inputs, outputs, **options))
        return outputs[0]

    def linear(self, source: str, name: str, width_in: int, width_out: int) -> str:
        return self.add(
            "MatMul",
            [source, self.weight(name, width_in, width_out)],
            [f"{name}/out"],
            name=name,
        )

    def norm(self, name: str, stream: str, update: str | None) -> tuple[str, str]:
        scale = self.constant(name, self.rng.uniform(0.2, 1.2, HIDDEN).astype(np.float32))
        out, total = f"{name}/out", f"{name}/sum"
        if update is None:
            options = {"axis": -1, "epsilon": 1e-5, "stash_type": 1}
            self.add("SimplifiedLayerNormalization", [stream, scale], [out], name=name, **options)
            return out, stream
        self.add(
            "SkipSimplifiedLayerNormalization",
            [stream, update, scale],
            [out, "", "", total],
            name=name,
            domain=CONTRIB,
            epsilon=1e-5,
        )
        return out, total


def _layer(build: _Builder, layer: int, stream: str, update: str | None) -> tuple[str, str]:
    at = f"layers.{layer}"
    normed, stream = build.norm(f"{at}.attention_norm", stream, update)
    qkv = build.linear(normed, f"{at}.qkv", HIDDEN, (HEADS + 2 * KV_HEADS) * HEAD_DIM)
    bias = build.weight(f"{at}.qkv_bias", (HEADS + 2 * KV_HEADS) * HEAD_DIM)
    biased = build.add("Add", [qkv, bias], [f"{at}.qkv/biased"])
    present = [f"present.{layer}.0.{part}" for part in ("key", "value")]
    past = [name.replace("present", "past") for name in present]
    build.add(
        "GroupQueryAttention",
        [biased, "", "", *past, "seqlens_k.0", "total_length.0", "cos", "sin", "position_ids"],
        [f"{at}.attention", *present],
        name=f"{at}.attention.0",
        domain=CONTRIB,
        num_heads=HEADS,
        kv_num_heads=KV_HEADS,
        do_rotary=1,
        scale=HEAD_DIM**-0.5,
    )
    update = build.linear(f"{at}.attention", f"{at}.o", HEADS * HEAD_DIM, HIDDEN)
    normed, stream = build.norm(f"{at}.mlp_norm", stream, update)
    both = build.linear(normed, f"{at}.gate_up", HIDDEN, 2 * INNER)
    build.add("Split", [both], [f"{at}.gate", f"{at}.up"], axis=-1, num_outputs=2)
    build.add("QuickGelu", [f"{at}.gate"], [f"{at}.active"], domain=CONTRIB, alpha=1.0)
    build.add("Mul", [f"{at}.active", f"{at}.up"], [f"{at}.inner"])
    return stream, build.linear(f"{at}.inner", f"{at}.down", INNER, HIDDEN)


def small_model(seed: int = 0) -> onnx.ModelProto:
    build, value = _Builder(seed), helper.make_tensor_value_info
    angles = np.outer(np.arange(CONTEXT), 1e4 ** (-np.arange(0, HEAD_DIM, 2) / HEAD_DIM))
    build.constant("cos", np.cos(angles).astype(np.float32))
    build.constant("sin", np.sin(angles).astype(np.float32))
    stream = build.add("Gather", [build.weight("embedding", VOCAB, HIDDEN), "input_ids"], ["x"])
    update: str | None = None
    for layer in range(LAYERS):
        stream, update = _layer(build, layer, stream, update)
    normed, _ = build.norm("final_norm", stream, update)
    flat = build.constant("flat", np.array([-1, HIDDEN], np.int64))
    build.add("Reshape", [normed, flat], ["flattened"])
    build.add("Gather", ["flattened", "logits_index"], ["wanted"], axis=0)
    build.add(
        "MatMul", ["wanted", build.weight("lm_head", HIDDEN, VOCAB)], ["logits"], name="lm_head"
    )
    int64, int32, single = TensorProto.INT64, TensorProto.INT32, TensorProto.FLOAT
    inputs = [
        value("input_ids", int64, [1, "N"]),
        value("logits_index", int64, ["M"]),
        value("position_ids", int64, [1, "N"]),
        value("seqlens_k.0", int32, [1]),
        value("total_length.0", int32, []),
    ]
    outputs = [value("logits", single, ["M", VOCAB])]
    for layer in range(LAYERS):
        for part in ("key", "value"):
            shape = [1, KV_HEADS, "capacity.0", HEAD_DIM]
            inputs.append(value(f"past.{layer}.0.{part}", single, shape))
            outputs.append(value(f"present.{layer}.0.{part}", single, shape))
    graph = helper.make_graph(build.nodes, "target", inputs, outputs, build.initializers)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(CONTRIB, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def random_texts(count: int = 6, length: int = 48) -> list[list[int]]:
    rng = np.random.default_rng(3)
    return [rng.integers(0, VOCAB, length).tolist() for _ in range(count)]


def outputs_of(model: onnx.ModelProto, ids: list[int]) -> dict[str, Any]:
    with on_disk(model) as stored:
        return stored.runner(1, CONTEXT).run([RowStep(ids)])


def small_context() -> CalibrationContext:
    return CalibrationContext(
        encode=lambda text: [1 + ord(letter) % (VOCAB - 1) for letter in text[:16]],
        render=None,
        bos_id=0,
        eos_ids=(VOCAB - 1,),
    )
