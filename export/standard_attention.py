"""Attention in ONNX's own operators, on K/V buffers that are written in place."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto

from export.graph import Graph, attribute
from models.errors import UserError


def refused(reason: str) -> UserError:
    return UserError(
        f"the target cannot be written in ONNX's own operators, as TensorRT needs it: {reason}.",
        code="not_standard",
        param="--device",
    )


class Emitter:
    """Adds nodes to a graph whose activations are of the type `kind`."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.graph = Graph(model)
        past = next(value for value in model.graph.input if value.name.startswith("past."))
        self.kind = past.type.tensor_type.elem_type
        self.head_dim = int(past.type.tensor_type.shape.dim[3].dim_value)

    def _cast(self, source: str, kind: int, name: str) -> str:
        return (
            source if self.kind == TensorProto.FLOAT else self._one("Cast", [source], name, to=kind)
        )

    def _constant(self, name: str, values: NDArray[Any]) -> str:
        if name not in self.graph.initializers:
            self.graph.add_initializer(name, values)
        return name

    def _one(self, kind: str, inputs: list[str], output: str, **attributes: Any) -> str:
        self.graph.add(kind, inputs, [output], output, **attributes)
        return output


class AttentionLowering(Emitter):
    """Replaces attention nodes: by nodes of their kind (`fused`), or taken apart."""

    def __init__(self, model: onnx.ModelProto, *, fused: bool) -> None:
        super().__init__(model)
        self.fused = fused
        self._begins: dict[str, str] = {}
        self._masks: dict[tuple[str, int], str] = {}

    def attention(self, node: NodeProto) -> None:
        graph, name = self.graph, node.name
        heads, kv_heads = (int(attribute(node, key, 0)) for key in ("num_heads", "kv_num_heads"))
        row = node.input[5].rpartition(".")[2]
        positions = self._positions(row)
        queries, keys, values = self._split(node, heads, kv_heads)
        graph.remove(node)
        if attribute(node, "do_rotary", 0):
            tables = (node.input[7], node.input[8])
            queries = self._turned(queries, tables, positions, f"{name}/q_turned")
            keys = self._turned(keys, tables, positions, f"{name}/k_turned")
        key = self._scattered(node.input[3], keys, positions, node.output[1])
        value = self._scattered(node.input[4], values, positions, node.output[2])
        mask = self._mask(key, positions, row, int(attribute(node, "local_window_size", -1)))
        scale = float(attribute(node, "scale", 0.0)) or self.head_dim**-0.5
        softcap = float(attribute(node, "softcap", 0.0))
        if self.fused:
            seen = self._one(
                "Attention",
                [queries, key, value, mask],
                f"{name}/seen",
                scale=scale,
                softcap=softcap,
                softmax_precision=TensorProto.FLOAT,
            )
        else:
            groups = heads // kv_heads
            seen = self._seen_apart(name, queries, key, value, mask, (groups, scale, softcap))
        flat = self._constant(
            f"standard/flat/{heads}", np.array([1, -1, heads * self.head_dim], np.int64)
        )
        rows = self._one("Transpose", [seen], f"{name}/rows", perm=[0, 2, 1, 3])
        graph.add("Reshape", [rows, flat], [node.output[0]], name)

    def _split(self, node: NodeProto, heads: int, kv_heads: int) -> list[str]:
        """q, k and v [1, heads, S, head_dim]; packed ones come as one tensor."""
        name, sources = node.name, [node.input[0], node.input[1], node.input[2]]
        counts = (heads, kv_heads, kv_heads)
        if not sources[1]:
            sizes = np.array([count * self.head_dim for count in counts], np.int64)
            widths = self._constant(f"standard/widths/{heads}.{kv_heads}", sizes)
            parts = [f"{name}/split_{part}" for part in "qkv"]
            self.graph.add("Split", [sources[0], widths], parts, f"{name}/qkv", axis=2)
            sources = parts
        found = []
        for part, source, count in zip("qkv", sources, counts, strict=True):
            shape = np.array([1, -1, count, self.head_dim], np.int64)
            shaped = self._constant(f"standard/heads/{count}", shape)
            apart = self._one("Reshape", [source, shaped], f"{name}/{part}_heads")
            turned = self._one("Transpose", [apart], f"{name}/{part}_first", perm=[0, 2, 1, 3])
            found.append(turned)
        return found

    def _turned(self, source: str, tables: tuple[str, str], positions: str, name: str) -> str:
        half = int(self.graph.initializers[tables[0]].dims[1])
        rest = self.head_dim - 2 * half
        if self.fused:
            turned = {"rotary_embedding_dim": 2 * half} if rest else {}
            return self._one("RotaryEmbedding", [source, *tables, positions], name, **turned)
        one = self._constant("standard/head_axis", np.array([1], np.int64))
        turns = []
        for table_name, part in zip(tables, ("cos", "sin"), strict=True):
            picked = self._one("Gather", [table_name, positions], f"{name}/{part}_rows", axis=0)
            turns.append(self._one("Unsqueeze", [picked, one], f"{name}/{part}"))
        first, second = halves = [f"{name}/first", f"{name}/second"]
        unturned = [f"{name}/rest"] if rest else []
        sizes = [half, half, *([rest] if rest else [])]
        widths = self._constant(f"standard/halves/{half}", np.array(sizes, np.int64))
        self.graph.add("Split", [source, widths], [*halves, *unturned], f"{name}/halves", axis=3)
        cos, sin = turns

        def both(kind: str, x: str, y: str, part: str) -> str:
            one_product = self._one("Mul", [x, cos], f"{name}/{part}_cos")
            other = self._one("Mul", [y, sin], f"{name}/{part}_sin")
            return self._one(kind, [one_product, other], f"{name}/{part}_turned")

        parts = [both("Sub", first, second, "first"), both("Add", second, first, "second")]
        return self._one("Concat", [*parts, *unturned], name, axis=3)

    def _scattered(self, past: str, update: str, positions: str, present: str) -> str:
        """The cache with `update` at the row's places, which follow one another."""
        if self.fused:
            begin = self._begin(positions)
            self.graph.add(
                "TensorScatter", [past, update, begin], [present], f"{present}/write", axis=2
            )
            return present
        begin = self._begin(positions)
        shape = self._one("Shape", [update], f"{present}/shape")
        axis = self._constant("standard/place_axis", np.array([2], np.int64))
        size = self._one("Gather", [shape, axis], f"{present}/size", axis=0)
        zero = self._constant("standard/zero", np.array(0, np.int64))
        step = self._constant("standard/one", np.array(1, np.int64))
        scalar = self._constant("standard/scalar", np.array([], np.int64))
        count = self._one("Reshape", [size, scalar], f"{present}/count")
        own = self._one("Range", [zero, count, step], f"{present}/own")
        places = self._one("Add", [own, begin], f"{present}/places")
        column = self._constant("standard/column", np.array([1, 1, -1, 1], np.int64))
        shaped = self._one("Reshape", [places, column], f"{present}/column")
        indices = self._one("Expand", [shaped, shape], f"{present}/indices")
        self.graph.add(
            "ScatterElements", [past, indices, update], [present], f"{present}/write", axis=2
        )
        return present

    def _begin(self, positions: str) -> str:
        """[1]: where the row begins."""
        if positions not in self._begins:
            first = self._constant("standard/first", np.array([0], np.int64))
            flat = self._constant("standard/line", np.array([-1], np.int64))
            line = self._one("Reshape", [positions, flat], f"{positions}/line")
            self._begins[positions] = self._one("Gather", [line, first], f"{positions}/begin")
        return self._begins[positions]

    def _mask(self, key: str, positions: str, row: str, window: int) -> str:
        """[1, 1, S, capacity]: True where a token sees a place."""
        bias = f"attention_bias.{row}"
        if any(value.name == bias for value in self.graph.model.graph.input):
            raise refused("a graph for trees")
        known = self._masks.get((positions, window))
        if known is not None:
            return known
        name = f"{positions}/mask" if window < 0 else f"{positions}/mask.{window}"
        shape = self._one("Shape", [key], f"{name}/shape")
        axis = self._constant("standard/place", np.array(2, np.int64))
        capacity = self._one("Gather", [shape, axis], f"{name}/capacity", axis=0)
        zero = self._constant("standard/zero", np.array(0, np.int64))
        step = self._constant("standard/one", np.array(1, np.int64))
        places = self._one("Range", [zero, capacity, step], f"{name}/places")
        column = self._constant("standard/rows", np.array([1, 1, -1, 1], np.int64))
        own = self._one("Reshape", [positions, column], f"{name}/own")
        past = self._one("LessOrEqual", [places, own], f"{name}/past" if window > 0 else name)
        mask = past
        if window > 0:
            size = self._constant(f"standard/window/{window}", np.array(window, np.int64))
            begin = self._one("Sub", [own, size], f"{name}/begin")
            near = self._one("Greater", [places, begin], f"{name}/near")
            mask = self._one("And", [past, near], name)
        self._masks[positions, window] = mask
        return mask

    def _seen_apart(
        self,
        name: str,
        queries: str,
        key: str,
        value: str,
        mask: str,
        how: tuple[int, float, float],
    ) -> str:
        """[1, heads, S, head_dim]: every K/V head serves a group of queries."""
        groups, scale, softcap = how
        if groups > 1:
            key, value = (self._repeated(each, groups) for each in (key, value))
        turned = self._one("Transpose", [key], f"{name}/k_turned_over", perm=[0, 1, 3, 2])
        product = self._one("MatMul", [queries, turned], f"{name}/product")
        scores = self._cast(product, TensorProto.FLOAT, f"{name}/wide")
        factor = self._constant(f"standard/scale/{scale}", np.array(scale, np.float32))
        scores = self._one("Mul", [scores, factor], f"{name}/scores")
        if softcap:
            cap = self._constant(f"standard/cap/{softcap}", np.array(softcap, np.float32))
            small = self._one("Div", [scores, cap], f"{name}/uncapped")
            tanh = self._one("Tanh", [small], f"{name}/tanh")
            scores = self._one("Mul", [tanh, cap], f"{name}/capped")
        hidden = self._constant("standard/hidden", np.array(-1e9, np.float32))
        shown = self._one("Where", [mask, scores, hidden], f"{name}/shown")
        share = self._one("Softmax", [shown], f"{name}/share", axis=-1)
        narrow = self._cast(share, self.kind, f"{name}/narrow")
        return self._one("MatMul", [narrow, value], f"{name}/seen")

    def _repeated(self, cache: str, groups: int) -> str:
        """[1, kv_heads * groups, capacity, head_dim], each head `groups` times."""
        name = f"{cache}/repeated"
        two = self._constant("standard/group_axis", np.array([2], np.int64))
        apart = self._one("Unsqueeze", [cache, two], f"{name}/apart")
        several = self._one("Concat", [apart] * groups, f"{name}/several", axis=2)
        shape = self._one("Shape", [cache], f"{name}/shape")
        factor = self._constant(f"standard/groups/{groups}", np.array([1, groups, 1, 1], np.int64))
        size = self._one("Mul", [shape, factor], f"{name}/size")
        return self._one("Reshape", [several, size], name)

    def _positions(self, row: str) -> str:
        names = {value.name for value in self.graph.model.graph.input}
        return f"position_ids.{row}" if f"position_ids.{row}" in names else "position_ids"
