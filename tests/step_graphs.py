"""Random step graphs of drafters, and runs of them and of what is unrolled from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto, helper, numpy_helper

from export.heads.step import StepGraph

FLOAT, INT64, INT32 = TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT32
CONTRIB = "com.microsoft"
_TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16}


@dataclass(frozen=True, slots=True)
class Sizes:
    hidden: int = 16
    heads: int = 2
    kv_heads: int = 1
    head_dim: int = 16
    intermediate: int = 32
    vocabulary: int = 300
    drafted: int = 90
    features: int = 24
    positions: int = 128
    layers: int = 1
    seed: int = 0

    @property
    def qkv(self) -> int:
        return (self.heads + 2 * self.kv_heads) * self.head_dim


class _Builder:
    """`first_layer` numbers the K/V."""

    def __init__(self, sizes: Sizes, *, states: bool, first_layer: int) -> None:
        self.sizes, self.states, self.first_layer = sizes, states, first_layer
        self.random = np.random.default_rng(sizes.seed)
        self.nodes: list[NodeProto] = []
        self.tensors: list[TensorProto] = []

    def constant(self, name: str, values: NDArray[Any]) -> str:
        self.tensors.append(numpy_helper.from_array(np.asarray(values, order="C"), name))
        return name

    def weight(self, name: str, rows: int, columns: int, scale: float = 1.0) -> str:
        values = self.random.standard_normal((rows, columns)) * scale / np.sqrt(rows)
        return self.constant(name, values.astype(np.float32))

    def add(self, kind: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(kind, inputs, [output], name=output, **attributes))
        return output

    def norm(self, x: str, name: str, width: int) -> str:
        weight = self.constant(name, (1 + 0.1 * self.random.standard_normal(width)).astype("f4"))
        return self.add(
            "SimplifiedLayerNormalization", [x, weight], f"{name}/out", epsilon=1e-5, axis=-1
        )

    def layer(self, x: str, read: str, width: int, number: int) -> str:
        """A decoder layer with the residual `x`, whose q, k and v read `read`."""
        s, name = self.sizes, f"layers.{number}"
        qkv = self.add("MatMul", [read, self.weight(f"{name}.qkv", width, s.qkv)], f"{name}/qkv")
        kv = number + self.first_layer
        self.nodes.append(
            helper.make_node(
                "GroupQueryAttention",
                [
                    *(qkv, "", "", f"past.{kv}.0.key", f"past.{kv}.0.value"),
                    *("seqlens_k.0", "total_length.0", "cos", "sin", "position_ids"),
                ],
                [f"{name}/attention", f"present.{kv}.0.key", f"present.{kv}.0.value"],
                name=f"{name}/attention",
                domain=CONTRIB,
                num_heads=s.heads,
                kv_num_heads=s.kv_heads,
                do_rotary=1,
                scale=s.head_dim**-0.5,
            )
        )
        o = self.weight(f"{name}.o", s.heads * s.head_dim, s.hidden)
        attended = self.add("MatMul", [f"{name}/attention", o], f"{name}/o")
        x = self.add("Add", [x, attended], f"{name}/middle")
        normed = self.norm(x, f"{name}.mlp_norm", s.hidden)
        both = self.weight(f"{name}.gate_up", s.hidden, 2 * s.intermediate)
        product = self.add("MatMul", [normed, both], f"{name}/gate_up")
        parts = [f"{name}/gate", f"{name}/up"]
        self.nodes.append(
            helper.make_node("Split", [product], parts, name=parts[0], axis=-1, num_outputs=2)
        )
        active = self.add("QuickGelu", [parts[0]], f"{name}/active", domain=CONTRIB, alpha=1.0)
        inner = self.add("Mul", [active, parts[1]], f"{name}/inner")
        down = self.weight(f"{name}.down", s.intermediate, s.hidden)
        return self.add("Add", [x, self.add("MatMul", [inner, down], f"{name}/d")], f"{name}/x")

    def model(self) -> onnx.ModelProto:
        s = self.sizes
        self._rotary()
        x = self.add(
            "Gather", [self.weight("embedding", s.vocabulary, s.hidden, 4.0), "input_ids"], "embeds"
        )
        if self.states:
            first = self.constant("first_axis", np.array([0], np.int64))
            states = self.add("Unsqueeze", ["states", first], "states/batch")
            parts = [self.norm(x, "token_norm", s.hidden), self.norm(states, "st_norm", s.hidden)]
            read, x = self.add("Concat", parts, "both", axis=-1), states
        else:
            read = self.norm(x, "attention_norm", s.hidden)
        for number in range(s.layers):
            x = self.layer(
                x, read, 2 * s.hidden if self.states and not number else s.hidden, number
            )
            read = x
        flat = self.constant("flat_shape", np.array([-1, s.hidden], np.int64))
        rows = self.add("Reshape", [x, flat], "next_states")
        wanted = self.add("Gather", [rows, "logits_index"], "wanted", axis=0)
        head = self.weight("lm_head", s.hidden, s.drafted, 3.0)
        self.add("MatMul", [self.norm(wanted, "final_norm", s.hidden), head], "logits")
        return self._finished()

    def _rotary(self) -> None:
        s = self.sizes
        angles = np.arange(s.positions)[:, None] / 100 ** (np.arange(s.head_dim // 2) / 4)
        self.constant("cos", np.cos(angles).astype(np.float32))
        self.constant("sin", np.sin(angles).astype(np.float32))

    def _finished(self) -> onnx.ModelProto:
        s, value = self.sizes, helper.make_tensor_value_info
        inputs = [value("input_ids", INT64, [1, "tokens"])]
        outputs = [value("logits", FLOAT, ["wanted", s.drafted])]
        if self.states:
            inputs.append(value("states", FLOAT, ["tokens", s.hidden]))
            outputs.append(value("next_states", FLOAT, ["tokens", s.hidden]))
        inputs += [
            value("logits_index", INT64, ["wanted"]),
            value("position_ids", INT64, [1, "tokens"]),
            value("seqlens_k.0", INT32, [1]),
            value("total_length.0", INT32, []),
        ]
        for layer in range(self.first_layer, self.first_layer + s.layers):
            for part in ("key", "value"):
                shape = [1, s.kv_heads, "capacity", s.head_dim]
                inputs.append(value(f"past.{layer}.0.{part}", FLOAT, shape))
                outputs.append(value(f"present.{layer}.0.{part}", FLOAT, shape))
        return _model(self.nodes, inputs, outputs, self.tensors)


def head_step(sizes: Sizes = Sizes(), *, modules: int = 1, entry: bool = True) -> StepGraph:
    """Like EAGLE-3; with `modules`, one after another, like MTP."""
    random = np.random.default_rng(sizes.seed + 99)
    models = [
        _Builder(
            Sizes(**{**_fields(sizes), "seed": sizes.seed + index}),
            states=True,
            first_layer=index * sizes.layers,
        ).model()
        for index in range(modules)
    ]
    ids = np.sort(random.permutation(sizes.vocabulary)[: sizes.drafted]).astype(np.int64)
    return StepGraph(models[0], _entry(sizes) if entry else None, ids, tuple(models[1:]))


def model_step(sizes: Sizes = Sizes(layers=2)) -> StepGraph:
    """Like a draft model: tokens alone, the whole vocabulary.

    As where it is traced, the number of logits is not said.
    """
    whole = Sizes(**{**_fields(sizes), "drafted": sizes.vocabulary})
    model = _Builder(whole, states=False, first_layer=0).model()
    logits = next(value for value in model.graph.output if value.name == "logits")
    logits.type.tensor_type.shape.dim[1].dim_param = "vocabulary"
    return StepGraph(model, None, None)


def _entry(sizes: Sizes) -> onnx.ModelProto:
    values = np.random.default_rng(7).standard_normal((sizes.features, sizes.hidden))
    weight = numpy_helper.from_array((values / np.sqrt(sizes.features)).astype("f4"), "fc")
    value = helper.make_tensor_value_info
    return _model(
        [helper.make_node("MatMul", ["features", "fc"], ["states"], name="fc")],
        [value("features", FLOAT, ["tokens", sizes.features])],
        [value("states", FLOAT, ["tokens", sizes.hidden])],
        [weight],
    )


def _fields(sizes: Sizes) -> dict[str, int]:
    return {name: getattr(sizes, name) for name in Sizes.__slots__}


def _model(
    nodes: list[NodeProto], inputs: list[Any], outputs: list[Any], tensors: list[TensorProto]
) -> onnx.ModelProto:
    model = helper.make_model(
        helper.make_graph(nodes, "step", inputs, outputs, tensors),
        opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid(CONTRIB, 1)],
    )
    model.ir_version = 10
    return model


class Runner:
    """One session with its own K/V buffers, each bound as a past and as all its presents."""

    def __init__(self, model: onnx.ModelProto | Path, capacity: int = 64) -> None:
        options = ort.SessionOptions()
        options.log_severity_level = 3
        source = str(model) if isinstance(model, Path) else model.SerializeToString()
        self._session = ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])
        self.inputs = {value.name: value.type for value in self._session.get_inputs()}
        self.outputs = [value.name for value in self._session.get_outputs()]
        self.buffers: dict[str, NDArray[Any]] = {}
        self._bound: dict[str, ort.OrtValue] = {}
        for value in self._session.get_inputs():
            if value.name.startswith("past."):
                shape = (1, value.shape[1], capacity, value.shape[3])
                name = value.name.removeprefix("past.")
                self.buffers[name] = np.zeros(shape, _TYPES[value.type])
                self._bound[name] = ort.OrtValue.ortvalue_from_numpy(self.buffers[name])

    def copy_buffers(self, other: Runner) -> None:
        for name, buffer in other.buffers.items():
            self.buffers[name][...] = buffer

    def run(self, feeds: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """All outputs but the K/V. Feeds that the graph has no input for are left out."""
        binding = self._session.io_binding()
        kept = {name: feeds[name] for name in self.inputs if name in feeds}
        for name, values in kept.items():
            kind = _TYPES.get(self.inputs[name], values.dtype)
            kept[name] = np.ascontiguousarray(values, kind)
            binding.bind_cpu_input(name, kept[name])
        for name, bound in self._bound.items():
            binding.bind_ortvalue_input(f"past.{name}", bound)
        for name in self.outputs:
            if name.startswith("present."):
                buffer = ".".join(name.split(".")[1:4])
                binding.bind_ortvalue_output(name, self._bound[buffer])
            else:
                binding.bind_output(name, "cpu")
        self._session.run_with_iobinding(binding)
        found = zip(self.outputs, binding.get_outputs(), strict=True)
        return {n: v.numpy() for n, v in found if not n.startswith("present.")}


def lengths(place: str, past: int, count: int) -> dict[str, NDArray[Any]]:
    """Of entries `past` to `past + count`, one a position.

    `place` is the step of an unrolled graph, "" for a step graph.
    """
    step = f".{place}" if place else ""
    return {
        f"position_ids{step}": past + np.arange(count)[None],
        f"seqlens_k{step or '.0'}": np.array([past + count - 1], np.int32),
        f"total_length{step or '.0'}": np.array(past + count, np.int32),
    }


def chain_feeds(
    ids: Sequence[int], features: NDArray[Any] | None, past: int, steps: int, drafted: int
) -> dict[str, NDArray[Any]]:
    """Greedy: no noise."""
    feeds: dict[str, NDArray[Any]] = {
        "input_ids": np.array([ids], np.int64),
        "noise": np.zeros((steps, drafted), np.float32),
        "inverse_temperature": np.ones(1, np.float32),
        "top_p": np.ones(1, np.float32),
        "top_k": np.full(1, drafted, np.int64),
    }
    if features is not None:
        feeds["features"] = features
    feeds |= lengths("0", past, len(ids))
    for step in range(1, steps):
        feeds |= lengths(str(step), past + len(ids) - 1 + step, 1)
    return feeds
