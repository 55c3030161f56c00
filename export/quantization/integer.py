"""Linear layers as integer products (w8a8), row by row independent and exact in any order.

Weights are int8 with a scale per column. Inputs are uint8 with zero point 128, in one of two forms:

- static: one scale for the layer, calibrated; good where inputs are near Gaussian and normed;
- by row: the row is first divided by its largest magnitude, the product is multiplied by it.

An input with a few large values per row may be rotated in blocks first (QuaRot's online Hadamard).

`u8s8` multiplies uint8 by int8: exact and fastest where the CPU has VNNI or AMX, but saturating to
16 bits elsewhere. `u8u8` stores weights as uint8 with zero point 128: exact everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from export.graph import CONTRIB, Graph
from export.quantization.rotation import hadamard
from export.quantization.rounding import LEVELS, IntegerWeight
from export.quantization.structure import linear

ZERO = 128


@dataclass(frozen=True, slots=True)
class InputForm:
    """How a layer's input becomes uint8.

    `scale` is the static scale, None: by row. `rotation` is the order of a Hadamard block that the
    input is multiplied by first (its inverse is in the weight already), 1: none.
    """

    scale: float | None
    rotation: int = 1


class IntegerLowering:
    """Replaces linear layers of `graph` by integer products of the form `form`."""

    def __init__(self, graph: Graph, form: str) -> None:
        assert form in ("u8u8", "u8s8"), form
        self._graph = graph
        self._form = form
        self._zero = graph.add_initializer("quantized/zero", np.array(ZERO, np.uint8))
        self._unit = graph.add_initializer("quantized/unit", np.array(1 / LEVELS, np.float32))
        self._axis = graph.add_initializer("quantized/last_axis", np.array([-1], np.int64))

    def lower(self, name: str, weight: IntegerWeight, form: InputForm) -> None:
        node = linear(self._graph, name)
        source, result = node.input[0], node.output[0]
        self._graph.remove(node)
        if form.rotation > 1:
            source = self._rotated(name, source, len(weight.values), form.rotation)
        if form.scale is None:
            self._by_row(name, source, result, weight)
        else:
            scale = np.array(form.scale, np.float32)
            scale_name = self._graph.add_initializer(f"{name}/input_scale", scale)
            self._multiply(name, source, result, weight, scale_name)

    def _by_row(self, name: str, source: str, result: str, weight: IntegerWeight) -> None:
        """Divide by the row's largest magnitude, quantise -1..1, multiply the product back.

        A row of zeros divides 0 by 0; whatever integers come of that are multiplied by 0.
        """
        graph = self._graph
        size, largest, unit, product = (
            f"{name}/{part}" for part in ("size", "largest", "unit", "product")
        )
        graph.add("Abs", [source], [size], name=size)
        graph.add("ReduceMax", [size, self._axis], [largest], name=largest, keepdims=1)
        graph.add("Div", [source, largest], [unit], name=unit)
        self._multiply(name, unit, product, weight, self._unit)
        graph.add("Mul", [product, largest], [result], name=f"{name}/scaled")

    def _rotated(self, name: str, source: str, width: int, order: int) -> str:
        graph = self._graph
        blocks, turned, flat = (f"{name}/{part}" for part in ("blocks", "turned", "flat"))
        matrix = graph.add_initializer(
            f"quantized/hadamard{order}", hadamard(order).astype(np.float32)
        )
        split = np.array([1, -1, width // order, order], np.int64)
        whole = np.array([1, -1, width], np.int64)
        graph.add(
            "Reshape",
            [source, graph.add_initializer(f"{blocks}/shape", split)],
            [blocks],
            name=blocks,
        )
        graph.add("MatMul", [blocks, matrix], [turned], name=turned)
        graph.add(
            "Reshape", [turned, graph.add_initializer(f"{flat}/shape", whole)], [flat], name=flat
        )
        return flat

    def _multiply(
        self, name: str, source: str, result: str, weight: IntegerWeight, scale: str
    ) -> None:
        graph = self._graph
        quantized = f"{name}/quantized"
        values, zeros = weight.values, np.zeros(weight.scales.shape, np.int8)
        graph.add_initializer(name, self._stored(values))
        graph.add_initializer(f"{name}/zeros", self._stored(zeros))
        graph.add_initializer(f"{name}/scales", weight.scales)
        graph.add("QuantizeLinear", [source, scale, self._zero], [quantized], name=quantized)
        graph.add(
            "MatMulIntegerToFloat",
            [quantized, name, scale, f"{name}/scales", self._zero, f"{name}/zeros"],
            [result],
            name=name,
            domain=CONTRIB,
        )

    def _stored(self, values: NDArray[np.int8]) -> NDArray[np.int8] | NDArray[np.uint8]:
        if self._form == "u8s8":
            return values
        return (values.astype(np.int16) + ZERO).astype(np.uint8)
