"""w8a8: which layer gets which form, and the weights that go with it.

Where the residual stream can be rotated, normed inputs are near Gaussian with a root mean square of
one, and a static scale will do (two nodes where scales by row take six): it does for lm_head. For
qkv and gate_up scales by row gave the lower divergence on the one model measured (mean KL 0.0040
against 0.0047), so they are used, as for o and down, whose inputs vary from row to row. down's
inputs have a few large values and are rotated in blocks first. Where the stream cannot be rotated
every input but lm_head's is treated like down's.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from numpy.typing import NDArray

from export.graph import Graph
from export.quantization.context import CalibrationContext
from export.quantization.folding import can_rotate, rotate_stream, rotate_values
from export.quantization.integer import InputForm, IntegerLowering
from export.quantization.rotation import rotate_blocks
from export.quantization.rounding import LEVELS, IntegerWeight, round_gptq
from export.quantization.scratch import on_disk
from export.quantization.statistics import InputStatistics, collect, static_scale
from export.quantization.structure import HEAD, kind_of, linear, linears_of, weight

_STATIC = (HEAD,)
_EVEN = ("qkv", "gate_up", "o")
_LARGEST_BLOCK = 64


def to_w8a8(
    model: onnx.ModelProto,
    form: str,
    texts: Sequence[Sequence[int]],
    context: CalibrationContext,
) -> onnx.ModelProto:
    """The graph with every linear layer as an integer product of `form` (`u8u8` or `u8s8`)."""
    work = onnx.ModelProto()
    work.CopyFrom(model)
    graph = Graph(work)
    rotated = can_rotate(graph)
    if rotated:
        rotate_stream(graph, context.seed)
        rotate_values(graph, context.seed)
    graph.finish()
    weights = _rounded(graph, rotated, texts)
    lowering = IntegerLowering(graph, form)
    for name, (values, input_form) in weights.items():
        lowering.lower(name, values, input_form)
    graph.finish()
    return work


def _rounded(
    graph: Graph, rotated: bool, texts: Sequence[Sequence[int]]
) -> dict[str, tuple[IntegerWeight, InputForm]]:
    names = linears_of(graph)
    inputs = {name: (linear(graph, name).input[0], len(weight(graph, name))) for name in names}
    results = {}
    with on_disk(graph.model) as stored:
        for group in collect(stored, inputs, texts):
            for name, seen in group.items():
                results[name] = _round_layer(name, weight(graph, name), seen, rotated)
    return results


def _round_layer(
    name: str, values: NDArray[np.float32], seen: InputStatistics, rotated: bool
) -> tuple[IntegerWeight, InputForm]:
    kind = kind_of(name)
    if rotated and kind in _STATIC:
        scale = static_scale(seen.rows, LEVELS)
        return round_gptq(values, seen.hessian), InputForm(scale)
    # lm_head reads [wanted, hidden], possibly no rows at all, which blocks cannot be made of.
    if kind == HEAD or (rotated and kind in _EVEN):
        return round_gptq(values, seen.hessian), InputForm(None)
    order = min(len(values) & -len(values), _LARGEST_BLOCK)
    turned = rotate_blocks(values.T, order).T
    hessian = rotate_blocks(rotate_blocks(seen.hessian, order).T, order)
    return round_gptq(turned, hessian), InputForm(None, order)
