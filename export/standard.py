"""The standard lowering: the same graph in ONNX's own operators, for TensorRT and for reference.

The contrib operators become those of opset 24. Attention is a node of its own kind (`fused`), or
taken apart into products and a softmax, for parsers that have no node for it:

- `GroupQueryAttention`: `RotaryEmbedding`, `TensorScatter` and `Attention`; apart, halves turned by
  cos and sin, `ScatterElements`, `MatMul` and `Softmax`;
- `SimplifiedLayerNormalization`, with a residual or not: `RMSNormalization`; apart, a mean of
  squares;
- `QuickGelu`: `Sigmoid` and `Mul`; `FastGelu`: `Gelu`.

Inputs and outputs are called as before. `seqlens_k` and `total_length` are gone: where a row begins
is the position of its first token, and a token sees the places up to its own. That is explicit, a
mask [S, capacity] which all layers share, since what `is_causal` means beside a longer cache is
read differently by runtimes. K/V are computed over their whole capacity, so on a CPU this is slow.

Weights of few bits (`MatMulNBits`) and graphs for trees are refused.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper

from export.graph import attribute
from export.standard_attention import AttentionLowering, refused

OPSET, IR_VERSION = 24, 11
_NORMS = ("SimplifiedLayerNormalization", "SkipSimplifiedLayerNormalization")
_GONE = ("seqlens_k.", "total_length.")
_SUM = 3


def to_standard(model: onnx.ModelProto, *, fused: bool = True) -> onnx.ModelProto:
    """A copy of a graph for any number of rows. Raises `UserError` (`not_standard`)."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    _Lowering(copy, fused=fused).lower()
    kept = [value for value in copy.graph.input if not value.name.startswith(_GONE)]
    del copy.graph.input[:]
    copy.graph.input.extend(kept)
    del copy.opset_import[:]
    copy.opset_import.append(helper.make_opsetid("", OPSET))
    copy.ir_version = IR_VERSION
    return copy


class _Lowering(AttentionLowering):
    def lower(self) -> None:
        graph = self.graph
        for node in graph.nodes:
            if node.op_type in _NORMS:
                self._norm(node)
            elif node.op_type == "QuickGelu":
                self._gate(node)
            elif node.op_type == "FastGelu":
                graph.remove(node)
                graph.add("Gelu", node.input[:1], node.output, node.name, approximate="tanh")
            elif node.op_type == "GroupQueryAttention":
                self.attention(node)
            elif node.domain:
                raise refused(f"{node.op_type} has no operators of ONNX's own")
        graph.finish()

    def _norm(self, node: NodeProto) -> None:
        graph, inputs = self.graph, list(node.input)
        graph.remove(node)
        if node.op_type == _NORMS[1]:
            total = node.output[_SUM] if len(node.output) > _SUM and node.output[_SUM] else ""
            total = total or f"{node.name}/sum"
            graph.add("Add", inputs[:2], [total], f"{node.name}/add")
            inputs = [total, inputs[2]]
        epsilon = float(attribute(node, "epsilon", 1e-5))
        if self.fused:
            graph.add(
                "RMSNormalization",
                inputs[:2],
                [node.output[0]],
                node.name,
                axis=-1,
                epsilon=epsilon,
                stash_type=TensorProto.FLOAT,
            )
        else:
            self._norm_apart(node, inputs[0], inputs[1], epsilon)

    def _norm_apart(self, node: NodeProto, source: str, weight: str, epsilon: float) -> None:
        name = node.name
        wide = self._cast(source, TensorProto.FLOAT, f"{name}/wide")
        square = self._one("Mul", [wide, wide], f"{name}/square")
        last = self._constant("standard/last_axis", np.array([-1], np.int64))
        mean = self._one("ReduceMean", [square, last], f"{name}/mean", keepdims=1)
        small = self._constant(f"standard/epsilon/{epsilon}", np.array(epsilon, np.float32))
        root = self._one("Sqrt", [self._one("Add", [mean, small], f"{name}/more")], f"{name}/root")
        scaled = self._one("Div", [wide, root], f"{name}/scaled")
        narrow = self._cast(scaled, self.kind, f"{name}/narrow")
        self.graph.add("Mul", [narrow, weight], [node.output[0]], f"{name}/weighted")

    def _gate(self, node: NodeProto) -> None:
        if attribute(node, "alpha", 1.702) != 1.0:
            raise refused("QuickGelu with another alpha than 1")
        self.graph.remove(node)
        gate = self._one("Sigmoid", [node.input[0]], f"{node.name}/gate")
        self.graph.add("Mul", [node.input[0], gate], node.output, node.name)
