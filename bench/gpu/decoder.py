"""A decoder of random weights, written as a graph at once: no checkpoint, no tracing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, ValueInfoProto, helper

from bench.gpu.shapes import Shape
from bench.gpu.weights import BLOCK, Weights
from export.graph import CONTRIB
from models.memory import PAD_TOKENS

TOP_K = 64
_OPSET, _IR_VERSION = 21, 10
_THETA = 500_000.0
_INT64, _INT32 = TensorProto.INT64, TensorProto.INT32


def decoder(shape: Shape, weights: Weights, *, listed: bool = True, features: bool = False) -> Any:
    """The graph for one row, as `export` writes it; `listed` False: of its results only `logits`,
    as in a drafter's step. With `features` it gives out `hidden`."""
    return _Decoder(shape, weights, listed=listed, features=features).model()


class _Decoder:
    def __init__(self, shape: Shape, weights: Weights, *, listed: bool, features: bool) -> None:
        self.shape, self.weights = shape, weights
        self.listed, self.features = listed, features
        self.nodes: list[NodeProto] = []
        self.kind = TensorProto.FLOAT16 if weights.half else TensorProto.FLOAT

    def model(self) -> onnx.ModelProto:
        s, w = self.shape, self.weights
        self._rotary()
        table = w.normal("embedding", (s.vocabulary, s.hidden), 1.0)
        stream = self._add("Gather", [table, "input_ids"], "embedded", axis=0)
        for layer in range(s.layers):
            stream = self._layer(layer, stream)
        flat = w.constant("decoder.rows", np.array([-1, s.hidden], dtype=np.int64))
        normed = self._norm(stream, "final_norm")
        rows = self._add("Reshape", [normed, flat], "rows")
        if self.features:
            self._add("Reshape", [normed, flat], "hidden")
        wanted = self._add("Gather", [rows, "logits_index"], "wanted", axis=0)
        self._head(wanted)
        return self._finished()

    def _layer(self, layer: int, stream: str) -> str:
        s, name = self.shape, f"layers.{layer}"
        quiet = 1 / np.sqrt(2 * s.layers)
        qkv = self._linear(
            self._norm(stream, f"{name}.attention_norm"),
            f"{name}.qkv",
            s.hidden,
            (s.heads + 2 * s.kv_heads) * s.head_dim,
        )
        self.nodes.append(self._attention(layer, qkv))
        attended = self._linear(
            f"{name}/attention", f"{name}.o", s.heads * s.head_dim, s.hidden, quiet
        )
        stream = self._add("Add", [stream, attended], f"{name}/middle")
        both = self._linear(
            self._norm(stream, f"{name}.mlp_norm"), f"{name}.gate_up", s.hidden, 2 * s.intermediate
        )
        parts = [f"{name}/gate", f"{name}/up"]
        self.nodes.append(
            helper.make_node("Split", [both], parts, name=parts[0], axis=-1, num_outputs=2)
        )
        active = self._add("QuickGelu", parts[:1], f"{name}/active", domain=CONTRIB, alpha=1.0)
        inner = self._add("Mul", [active, parts[1]], f"{name}/inner")
        down = self._linear(inner, f"{name}.down", s.intermediate, s.hidden, 2 * quiet)
        return self._add("Add", [stream, down], f"{name}/out")

    def _attention(self, layer: int, qkv: str) -> NodeProto:
        s, name = self.shape, f"layers.{layer}"
        return helper.make_node(
            "GroupQueryAttention",
            [
                *(qkv, "", "", f"past.{layer}.0.key", f"past.{layer}.0.value"),
                *("seqlens_k.0", "total_length.0", "rotary.cos", "rotary.sin", "position_ids"),
            ],
            [f"{name}/attention", f"present.{layer}.0.key", f"present.{layer}.0.value"],
            name=f"{name}/attention.0",
            domain=CONTRIB,
            num_heads=s.heads,
            kv_num_heads=s.kv_heads,
            do_rotary=1,
            scale=s.head_dim**-0.5,
        )

    def _head(self, wanted: str) -> None:
        s, half = self.shape, self.kind == TensorProto.FLOAT16
        made = "logits/half" if half else "logits"
        self._linear(wanted, "lm_head", s.hidden, s.vocabulary, 3.0, made)
        if half:
            self._add("Cast", [made], "logits", to=TensorProto.FLOAT)
        if not self.listed:
            return
        count = self.weights.constant("decoder.count", np.array([min(TOP_K, s.vocabulary)]))
        listed = ["top_values", "top_ids"]
        self.nodes.append(helper.make_node("TopK", ["logits", count], listed, name="top", axis=-1))
        # As the export writes it: a log-softmax, of which one entry says all.
        shares = self._add("LogSoftmax", ["logits"], "log_shares", axis=-1)
        first = self.weights.constant("decoder.first", np.array(0))
        logit = self._add("Gather", ["logits", first], "first_logit", axis=1)
        share = self._add("Gather", [shares, first], "first_share", axis=1)
        self._add("Sub", [logit, share], "logsumexp")

    def _linear(
        self,
        source: str,
        name: str,
        inputs: int,
        outputs: int,
        gain: float = 1.0,
        result: str | None = None,
    ) -> str:
        stored = self.weights.linear(name, inputs, outputs, gain)
        result = result or f"{name}/out"
        if len(stored) == 1:
            return self._add("MatMul", [source, *stored], result)
        return self._add(
            "MatMulNBits",
            [source, *stored],
            result,
            domain=CONTRIB,
            K=inputs,
            N=outputs,
            bits=8 if self.weights.kind == "int8" else 4,
            block_size=BLOCK,
            accuracy_level=0,
        )

    def _norm(self, source: str, name: str) -> str:
        weight = self.weights.constant(name, np.ones(self.shape.hidden, dtype=np.float32))
        return self._add(
            "SimplifiedLayerNormalization",
            [source, weight],
            f"{name}/out",
            name=name,
            axis=-1,
            epsilon=1e-5,
            stash_type=1,
        )

    def _rotary(self) -> None:
        s = self.shape
        rates = _THETA ** -(np.arange(s.head_dim // 2) * 2 / s.head_dim)
        angles = np.arange(s.context + PAD_TOKENS)[:, None] * rates
        self.weights.constant("rotary.cos", np.cos(angles).astype(np.float32))
        self.weights.constant("rotary.sin", np.sin(angles).astype(np.float32))

    def _add(self, kind: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        name = attributes.pop("name", output)
        self.nodes.append(helper.make_node(kind, inputs, [output], name=name, **attributes))
        return output

    def _finished(self) -> onnx.ModelProto:
        s, value = self.shape, helper.make_tensor_value_info
        inputs = [
            value("input_ids", _INT64, [1, "tokens"]),
            value("logits_index", _INT64, ["wanted"]),
            value("position_ids", _INT64, [1, "tokens"]),
            value("seqlens_k.0", _INT32, [1]),
            value("total_length.0", _INT32, []),
            *self._buffers("past"),
        ]
        outputs = [value("logits", TensorProto.FLOAT, ["wanted", s.vocabulary])]
        if self.listed:
            count = min(TOP_K, s.vocabulary)
            outputs += [
                value("top_values", TensorProto.FLOAT, ["wanted", count]),
                value("top_ids", _INT64, ["wanted", count]),
                value("logsumexp", TensorProto.FLOAT, ["wanted"]),
            ]
        outputs += self._buffers("present")
        if self.features:
            outputs.append(value("hidden", self.kind, ["tokens", s.hidden]))
        graph = helper.make_graph(self.nodes, "target", inputs, outputs, self.weights.tensors)
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", _OPSET), helper.make_opsetid(CONTRIB, 1)]
        )
        model.ir_version = _IR_VERSION
        return model

    def _buffers(self, kind: str) -> list[ValueInfoProto]:
        s = self.shape
        return [
            helper.make_tensor_value_info(
                f"{kind}.{layer}.0.{part}", self.kind, [1, s.kv_heads, "capacity", s.head_dim]
            )
            for layer in range(s.layers)
            for part in ("key", "value")
        ]
