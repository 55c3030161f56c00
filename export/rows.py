"""Graphs for several rows, derived from the R = 1 graph.

Linear layers see the N packed tokens of all rows; attention runs once per row on that row's tokens
and buffers. `row_index.r` picks a row's tokens out of the N, `unpack_index` puts the attention
outputs, one row after another, back into the N.

Bitwise independence of rows on the CPU holds for widths S_r >= 2 with S_r % (2 * head_dim) != 1:
onnxruntime's attention works in blocks of 2 * head_dim queries (where that fits the L2 cache), and
a block of one query takes another kernel. Measured with onnxruntime 1.32: 129 tokens at head_dim
64 differ by 1e-5 in the last token, 127, 128, 130 and the rest do not at all.

A graph for trees takes an `attention_bias.r` [1, 1, S_r, total_r] per row more, in the K/V's type:
0, or a large negative number where a token must not see another. The causal mask stays on. A zero
bias changes no bit on the CPU.

Features of the graph for one row (`hidden`, `taps`) become outputs per row, `hidden.r` [S_r, h] and
`taps.r`: those of the row's own tokens, as its attention sees them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx
from onnx import NodeProto, TensorProto, ValueInfoProto, helper

from export.graph import attribute

_PER_ROW = {f"{name}.0": name for name in ("seqlens_k", "total_length", "attention_bias")}
_BIAS_INPUT = 10
FEATURES = ("hidden", "taps")
Dims = list[int | str]


def derive_rows(single: onnx.ModelProto, rows: int, *, trees: bool = False) -> onnx.ModelProto:
    """The graph for `rows` rows. Initializers are taken over as they are, external or not."""
    graph = helper.make_graph(
        list(_nodes(single.graph.node, rows, trees)),
        f"target.{'tree.' if trees else ''}r{rows}",
        [*_inputs(single, rows), *(_biases(single, rows) if trees else ())],
        list(_outputs(single, rows)),
        list(single.graph.initializer),
    )
    model = helper.make_model(graph, opset_imports=list(single.opset_import))
    model.ir_version = single.ir_version
    model.metadata_props.extend(single.metadata_props)
    return model


def narrowest_window(single: onnx.ModelProto) -> int | None:
    """Of the layers with a sliding window; None where all layers see everything.

    A window counts tokens in the order of the K/V, in which siblings take places that no path has:
    in longer contexts a tree would see less than its paths do, and cannot be run.
    """
    windows = [
        int(attribute(node, "local_window_size", -1))
        for node in single.graph.node
        if node.op_type == "GroupQueryAttention"
    ]
    return min((window for window in windows if window > 0), default=None)


def _nodes(nodes: Iterable[NodeProto], rows: int, trees: bool) -> Iterator[NodeProto]:
    for node in nodes:
        if node.op_type != "GroupQueryAttention":
            yield from _feature_rows(node, rows) if node.output[0] in FEATURES else (node,)
            continue
        attention = NodeProto()
        attention.CopyFrom(node)
        if trees:
            attention.input.extend([""] * (_BIAS_INPUT - len(attention.input)))
            attention.input.append("attention_bias.0")
        yield from _attention_rows(attention, rows) if rows > 1 else (attention,)


def _attention_rows(node: NodeProto, rows: int) -> Iterator[NodeProto]:
    """One attention node becomes, per row, gathers and attention; then concat and gather."""
    base = node.name.removesuffix(".0")
    outputs = []
    for row in range(rows):
        attention = NodeProto()
        attention.CopyFrom(node)
        attention.name = f"{base}.{row}"
        for position, name in enumerate(node.input):
            if position < 3 and name:
                picked = f"{attention.name}/{'qkv'[position]}"
                yield helper.make_node(
                    "Gather", [name, f"row_index.{row}"], [picked], name=picked, axis=1
                )
                attention.input[position] = picked
            else:
                attention.input[position] = _row_name(name, row)
        attention.output[0] = f"{attention.name}/output"
        for position in (1, 2):
            attention.output[position] = _row_name(node.output[position], row)
        outputs.append(attention.output[0])
        yield attention
    stacked = f"{base}/rows"
    yield helper.make_node("Concat", outputs, [stacked], name=stacked, axis=1)
    yield helper.make_node(
        "Gather", [stacked, "unpack_index"], [node.output[0]], name=f"{base}/unpack", axis=1
    )


def _feature_rows(node: NodeProto, rows: int) -> Iterator[NodeProto]:
    """The node that makes a feature of all tokens; per row, one that picks the row's."""
    name = node.output[0]
    if rows > 1:
        yield node
        for row in range(rows):
            own = f"{name}.{row}"
            yield helper.make_node("Gather", [name, f"row_index.{row}"], [own], name=own, axis=0)
        return
    single = NodeProto()
    single.CopyFrom(node)
    single.output[0] = f"{name}.0"
    yield single


def _row_name(name: str, row: int) -> str:
    """The tensor of row 0 (or of the only row) as it is called for `row`."""
    if name in _PER_ROW:
        return f"{_PER_ROW[name]}.{row}"
    if name == "position_ids":
        return f"position_ids.{row}"
    kind, *rest = name.split(".")
    if kind in ("past", "present") and len(rest) == 3:
        layer, _, part = rest
        return f"{kind}.{layer}.{row}.{part}"
    return name


def _inputs(single: onnx.ModelProto, rows: int) -> Iterator[ValueInfoProto]:
    int64, int32 = TensorProto.INT64, TensorProto.INT32
    yield _value("input_ids", int64, [1, "tokens"])
    yield _value("logits_index", int64, ["wanted"])
    if rows == 1:
        yield _value("position_ids", int64, [1, "tokens"])
    else:
        for row in range(rows):
            yield _value(f"row_index.{row}", int64, [f"tokens.{row}"])
            yield _value(f"position_ids.{row}", int64, [1, f"tokens.{row}"])
        yield _value("unpack_index", int64, ["tokens"])
    for row in range(rows):
        yield _value(f"seqlens_k.{row}", int32, [1])
        yield _value(f"total_length.{row}", int32, [])
    yield from _buffers(single.graph.input, "past", rows)


def _biases(single: onnx.ModelProto, rows: int) -> Iterator[ValueInfoProto]:
    past = next(value for value in single.graph.input if value.name.startswith("past."))
    for row in range(rows):
        tokens = "tokens" if rows == 1 else f"tokens.{row}"
        shape: Dims = [1, 1, tokens, f"total.{row}"]
        yield _value(f"attention_bias.{row}", past.type.tensor_type.elem_type, shape)


def _outputs(single: onnx.ModelProto, rows: int) -> Iterator[ValueInfoProto]:
    for output in single.graph.output:
        if output.name in FEATURES:
            kind, width = output.type.tensor_type.elem_type, _dims(output)[1]
            for row in range(rows):
                tokens = "tokens" if rows == 1 else f"tokens.{row}"
                yield _value(f"{output.name}.{row}", kind, [tokens, width])
        elif not output.name.startswith("present."):
            yield output
    yield from _buffers(single.graph.output, "present", rows)


def _buffers(values: Iterable[ValueInfoProto], kind: str, rows: int) -> Iterator[ValueInfoProto]:
    for value in values:
        if not value.name.startswith(f"{kind}."):
            continue
        dims = _dims(value)
        for row in range(rows):
            shape: Dims = [1, dims[1], f"capacity.{row}", dims[3]]
            yield _value(_row_name(value.name, row), value.type.tensor_type.elem_type, shape)


def _dims(value: ValueInfoProto) -> list[int]:
    return [int(dim.dim_value) for dim in value.type.tensor_type.shape.dim]


def _value(name: str, kind: int, shape: Dims) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)
