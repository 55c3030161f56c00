"""The weights of a drafter's graphs: integers on a CPU, fp16 on a GPU.

A drafter only proposes, so a rounding costs a little acceptance and never a wrong token, and rows
need not be independent of their neighbours to the last bit. On a CPU its linear layers are products
of uint8 inputs, a scale for each row, and int8 weights, a scale for each column.

Without VNNI or AMX the product of u8 and s8 adds pairs in 16 bits, where they saturate. Weights of
7 bits cannot: 2 * 255 * 63 < 2^15. They take that product, the fastest there is, on every
processor (measured without VNNI, 576 x 16,384 at one row: 0.37 ms, against 0.60 with both
unsigned, 0.61 in 8-bit blocks, 2.7 in fp32); with VNNI weights have all 8 bits.

An embedding table has int8 rows with a scale each.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto

from export.graph import CONTRIB, Graph, attribute
from export.heads.step import StepGraph
from models.processor import integer_form

_LEVELS = {"u8s8": 127, "u8u8": 63}
_INPUT_LEVELS, _INPUT_ZERO = 127, 128
_LEAST_TABLE = 256
_LARGEST_HALF = float(np.finfo(np.float16).max)
Array = NDArray[np.float32]


def lower(step: StepGraph, device: str, *, form: str | None = None) -> StepGraph:
    """The step with its weights as `device` likes them: `cpu`, `cuda`, or `tensorrt`, beside which
    drafters run on CUDA.

    `form` is what integer products the processor makes exactly (None: this one). `entry` stays in
    fp32 on a CPU: a target's taps have dimensions hundreds of times larger than the rest, which a
    scale per row would round to nothing.
    """
    if device != "cpu":
        return _each(step, to_half, entry=True)
    levels = _LEVELS[form or integer_form()]
    return _each(step, lambda model: to_integers(model, levels), entry=False)


def to_integers(model: onnx.ModelProto, levels: int) -> onnx.ModelProto:
    """`model` with linear layers as integer products, weights in -levels..levels."""
    lowered = onnx.ModelProto()
    lowered.CopyFrom(model)
    graph = Graph(lowered)
    _plain_linears(graph)
    integers = _Integers(graph, levels)
    for node in graph.of_type("MatMul"):
        weight = graph.constant(node.input[1])
        if weight is not None and weight.ndim == 2:
            integers.product(node, weight)
    for node in _lookups(graph):
        _integer_rows(graph, node)
    graph.finish()
    return lowered


def to_half(model: onnx.ModelProto) -> onnx.ModelProto:
    """`model` in half precision, its inputs and outputs too; only the logits are float32."""
    half = onnx.ModelProto()
    half.CopyFrom(model)
    _cast_logits(half)
    for tensor in half.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT:
            values = np.clip(onnx.numpy_helper.to_array(tensor), -_LARGEST_HALF, _LARGEST_HALF)
            tensor.CopyFrom(onnx.numpy_helper.from_array(values.astype(np.float16), tensor.name))
    for node in half.graph.node:
        for one in node.attribute:
            if node.op_type == "Cast" and one.name == "to" and one.i == TensorProto.FLOAT:
                one.i = TensorProto.FLOAT if node.output[0] == "logits" else TensorProto.FLOAT16
    for value in (*half.graph.input, *half.graph.output):
        kind = value.type.tensor_type
        if kind.elem_type == TensorProto.FLOAT and value.name != "logits":
            kind.elem_type = TensorProto.FLOAT16
    return half


class _Integers:
    """Replaces linear layers. What several of them read is quantised once."""

    def __init__(self, graph: Graph, levels: int) -> None:
        self._graph = graph
        self._levels = levels
        self._quantized: dict[str, tuple[str, str]] = {}
        self._zero = graph.add_initializer("integer/zero", np.array(_INPUT_ZERO, np.uint8))
        self._unit = graph.add_initializer("integer/unit", np.array(1 / _INPUT_LEVELS, np.float32))
        self._axis = graph.add_initializer("integer/last_axis", np.array([-1], np.int64))

    def product(self, node: NodeProto, weight: Array) -> None:
        graph, (source, name), result = self._graph, node.input, node.output[0]
        quantized, largest = self._input(source)
        graph.remove(node)
        largest_column = np.abs(weight).max(0)
        scales = np.where(largest_column > 0, largest_column, 1.0) / self._levels
        values = np.clip(np.rint(weight / scales), -self._levels, self._levels)
        stored = graph.add_initializer(f"{name}/values", values.astype(np.int8))
        graph.add(
            "MatMulIntegerToFloat",
            [
                quantized,
                stored,
                self._unit,
                graph.add_initializer(f"{name}/scales", scales.astype(np.float32)),
                self._zero,
            ],
            [f"{result}/unit"],
            name=f"{result}/product",
            domain=CONTRIB,
        )
        graph.add("Mul", [f"{result}/unit", largest], [result], name=f"{result}/scaled")

    def _input(self, source: str) -> tuple[str, str]:
        """(uint8, largest magnitude per row) of `source`.

        A row of zeros divides 0 by 0; whatever integers come of that are multiplied by 0.
        """
        if source not in self._quantized:
            graph = self._graph
            size, largest, unit, whole = (
                f"{source}/{part}" for part in ("size", "largest", "unit", "uint8")
            )
            graph.add("Abs", [source], [size], name=size)
            graph.add("ReduceMax", [size, self._axis], [largest], name=largest, keepdims=1)
            graph.add("Div", [source, largest], [unit], name=unit)
            graph.add("QuantizeLinear", [unit, self._unit, self._zero], [whole], name=whole)
            self._quantized[source] = (whole, largest)
        return self._quantized[source]


def _plain_linears(graph: Graph) -> None:
    """Gemm, as layers on two dimensions are traced, becomes MatMul and Add."""
    for node in graph.of_type("Gemm"):
        weight = graph.constant(node.input[1])
        plain = all(attribute(node, name, 1.0) == 1.0 for name in ("alpha", "beta"))
        if weight is None or not plain or attribute(node, "transA", 0):
            continue
        name, result = node.input[1], node.output[0]
        graph.remove(node)
        if attribute(node, "transB", 0):
            name = graph.add_initializer(f"{name}/transposed", weight.T)
        biased = len(node.input) > 2 and node.input[2]
        product = f"{result}/unbiased" if biased else result
        graph.add("MatMul", [node.input[0], name], [product], name=f"{result}/linear")
        if biased:
            graph.add("Add", [product, node.input[2]], [result], name=f"{result}/bias")


def _lookups(graph: Graph) -> list[NodeProto]:
    """Gathers of rows of a large table: embeddings."""
    found = []
    for node in graph.of_type("Gather"):
        table = graph.initializers.get(node.input[0])
        if table is None or table.data_type != TensorProto.FLOAT or len(table.dims) != 2:
            continue
        if table.dims[0] >= _LEAST_TABLE and attribute(node, "axis", 0) == 0:
            found.append(node)
    return found


def _integer_rows(graph: Graph, node: NodeProto) -> None:
    (name, ids), result = node.input, node.output[0]
    table = graph.constant(name)
    assert table is not None
    largest = np.abs(table).max(1, keepdims=True)
    scales = (np.where(largest > 0, largest, 1.0) / 127).astype(np.float32)
    values = np.rint(table / scales).astype(np.int8)
    graph.remove(node)
    stored = graph.add_initializer(f"{name}/values", values)
    row_scales = graph.add_initializer(f"{name}/scales", scales)
    picked, wide, scale = (f"{result}/{part}" for part in ("int8", "float", "scale"))
    graph.add("Gather", [stored, ids], [picked], name=picked)
    graph.add("Cast", [picked], [wide], name=wide, to=TensorProto.FLOAT)
    graph.add("Gather", [row_scales, ids], [scale], name=scale)
    graph.add("Mul", [wide, scale], [result], name=f"{result}/scaled")


def _cast_logits(model: onnx.ModelProto) -> None:
    """The output `logits` becomes a cast of what made it."""
    if not any(value.name == "logits" for value in model.graph.output):
        return
    for node in model.graph.node:
        for names in (node.input, node.output):
            for position, name in enumerate(names):
                if name == "logits":
                    names[position] = "logits/half"
    model.graph.node.append(
        onnx.helper.make_node(
            "Cast", ["logits/half"], ["logits"], name="logits/float32", to=TensorProto.FLOAT
        )
    )


def _each(
    step: StepGraph, change: Callable[[onnx.ModelProto], onnx.ModelProto], *, entry: bool
) -> StepGraph:
    return dataclasses.replace(
        step,
        model=change(step.model),
        entry=change(step.entry) if entry and step.entry is not None else step.entry,
        later=tuple(change(model) for model in step.later),
    )
