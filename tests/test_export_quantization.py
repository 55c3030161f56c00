"""Quantisation on a small random Llama-like graph in the canonical form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from export.features import Features, add_features
from export.graph import CONTRIB, Graph
from export.quantization import CalibrationContext, quantize, weight_types
from export.quantization.answers import Answer
from export.quantization.folding import can_rotate, rotate_stream, rotate_values
from export.quantization.integer import InputForm, IntegerLowering
from export.quantization.quality import (
    Reference,
    measure_quality,
    reference_of,
    require_quality,
)
from export.quantization.rotation import hadamard, rotate_blocks, rotation
from export.quantization.rounding import IntegerWeight, round_gptq, round_nearest
from export.quantization.scratch import on_disk
from export.quantization.statistics import static_scale
from export.quantization.w8a8 import to_w8a8
from export.runner import GraphRunner, RowStep
from models.errors import UserError
from models.processor import integer_form

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


def _small_model(seed: int = 0) -> onnx.ModelProto:
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


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    return _small_model()


@pytest.fixture
def context() -> CalibrationContext:
    return CalibrationContext(
        encode=lambda text: [1 + ord(letter) % (VOCAB - 1) for letter in text[:16]],
        render=None,
        bos_id=0,
        eos_ids=(VOCAB - 1,),
    )


def _texts(count: int = 6, length: int = 48) -> list[list[int]]:
    rng = np.random.default_rng(3)
    return [rng.integers(0, VOCAB, length).tolist() for _ in range(count)]


def _outputs(model: onnx.ModelProto, ids: list[int]) -> dict[str, Any]:
    with on_disk(model) as stored:
        return stored.runner(1, CONTEXT).run([RowStep(ids)])


@pytest.mark.parametrize("size", [1, 2, 48, 64, 96, 576, 36, 136, 7 * 9])
def test_rotations_are_orthogonal_and_seeded(size: int) -> None:
    turn = rotation(size, 5)
    np.testing.assert_allclose(turn @ turn.T, np.eye(size), atol=1e-12)
    np.testing.assert_array_equal(turn, rotation(size, 5))
    if size > 1:
        assert np.abs(turn - rotation(size, 6)).max() > 0.01


@pytest.mark.parametrize("size", [12, 20, 28, 48, 576, 896, 960, 2304])
def test_rotations_are_hadamard_where_paley_reaches(size: int) -> None:
    """Every entry has the same magnitude, so that a spike is spread evenly."""
    magnitudes = np.abs(rotation(size, 0)) * np.sqrt(size)
    np.testing.assert_allclose(magnitudes, 1.0, atol=1e-12)


def test_block_rotation_is_its_own_inverse_and_spreads_a_spike() -> None:
    spike = np.zeros((1, 128), np.float32)
    spike[0, 70] = 8.0
    turned = rotate_blocks(spike, 64)
    np.testing.assert_allclose(np.abs(turned[0, 64:]), 1.0, rtol=1e-6)
    assert not turned[0, :64].any()
    np.testing.assert_allclose(rotate_blocks(turned, 64), spike, atol=1e-5)
    np.testing.assert_allclose(hadamard(4) @ hadamard(4), np.eye(4), atol=1e-12)


def test_rotation_leaves_logits_and_features_unchanged(model: onnx.ModelProto) -> None:
    ids = _texts(1)[0]
    work = onnx.ModelProto()
    work.CopyFrom(model)
    graph = Graph(work)
    assert can_rotate(graph)
    rotate_stream(graph, 1)
    rotate_values(graph, 2)
    graph.finish()
    every = Features(hidden=True, tap_layers=tuple(range(LAYERS + 1)))
    before, after = (_outputs(add_features(graph, every), ids) for graph in (model, work))
    for name in ("logits", "hidden.0", "taps.0"):
        atol = 1e-3 * before[name].std()
        np.testing.assert_allclose(after[name], before[name], atol=atol)
    ones = numpy_helper.to_array(graph.initializers["layers.1.mlp_norm"])
    np.testing.assert_array_equal(ones, np.ones(HIDDEN))
    changed = numpy_helper.to_array(graph.initializers["layers.0.down"])
    original = next(i for i in model.graph.initializer if i.name == "layers.0.down")
    assert np.abs(changed - numpy_helper.to_array(original)).max() > 0.1


def _with_norm_after_attention(model: onnx.ModelProto) -> onnx.ModelProto:
    work = onnx.ModelProto()
    work.CopyFrom(model)
    graph = Graph(work)
    after = next(n for n in graph.nodes if n.name == "layers.0.mlp_norm")
    graph.add_initializer("layers.0.attention_post_norm", np.ones(HIDDEN, np.float32))
    graph.add(
        "SimplifiedLayerNormalization",
        ["layers.0.o/out", "layers.0.attention_post_norm"],
        ["layers.0.o/normed"],
        name="layers.0.attention_post_norm",
        axis=-1,
    )
    graph.set_input(after, 1, "layers.0.o/normed")
    graph.finish()
    return work


def test_a_stream_with_norms_after_the_layers_is_quantised_without_rotating_it(
    model: onnx.ModelProto, context: CalibrationContext
) -> None:
    sandwich = _with_norm_after_attention(model)
    assert not can_rotate(Graph(sandwich))
    stored = to_w8a8(sandwich, "u8u8", _texts(), context)
    kinds = [node.op_type for node in stored.graph.node]
    assert kinds.count("MatMulIntegerToFloat") == 4 * LAYERS + 1
    embedding = next(i for i in stored.graph.initializer if i.name == "embedding")
    original = next(i for i in model.graph.initializer if i.name == "embedding")
    assert embedding.raw_data == original.raw_data
    ids = _texts(1, 60)[0][::-1]
    before, after = (_outputs(graph, ids)["logits"] for graph in (sandwich, stored))
    assert after.shape == before.shape
    assert np.abs(after - before).std() < 0.06 * before.std()
    with on_disk(stored) as disk:
        assert disk.runner(1, CONTEXT).run([RowStep(ids)], [])["logits"].shape == (0, VOCAB)


@pytest.mark.parametrize("form", ["u8u8", "u8s8"])
def test_integer_products_are_exact(form: str, tmp_path: Path) -> None:
    """Small values cannot saturate, so both forms must equal integer arithmetic everywhere."""
    rng = np.random.default_rng(0)
    values = rng.integers(-40, 41, (48, 24)).astype(np.int8)
    scales = np.exp2(rng.integers(-8, -2, 24)).astype(np.float32)
    source = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, None, 48])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, None, 24])
    nodes = [helper.make_node("MatMul", ["x", "layer"], ["y"], name="layer")]
    weight = numpy_helper.from_array(values.astype(np.float32), "layer")
    model = helper.make_model(
        helper.make_graph(nodes, "one", [source], [result], [weight]),
        opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid(CONTRIB, 1)],
        ir_version=10,
    )
    graph = Graph(model)
    IntegerLowering(graph, form).lower("layer", IntegerWeight(values, scales), InputForm(0.25))
    graph.finish()
    import onnxruntime as ort

    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    whole = rng.integers(-30, 31, (5, 48))
    x = (whole * 0.25).astype(np.float32)
    expected = (whole @ values.astype(np.int64)).astype(np.float32) * (scales * np.float32(0.25))
    np.testing.assert_array_equal(session.run(None, {"x": x[None]})[0][0], expected)


def test_a_product_scaled_by_row_is_close_and_zero_rows_stay_zero() -> None:
    rng = np.random.default_rng(1)
    weight = rng.standard_normal((64, 32)).astype(np.float32)
    x = rng.standard_normal((1, 6, 64)).astype(np.float32) * np.exp2(np.arange(6))[:, None]
    x = x.astype(np.float32)
    x[0, 3] = 0.0
    x[0, 1, 5] = 300.0
    expected = x[0] @ weight
    errors = {}
    for order in (1, 64):
        turned = rotate_blocks(weight.T, order).T if order > 1 else weight
        y = _run_layer(round_nearest(turned), InputForm(None, order), x)
        assert not y[3].any()
        errors[order] = np.abs(y - expected).max(1)
    scale = np.abs(expected).max(1) + 1e-9
    assert (errors[1] / scale).max() < 0.05
    assert (errors[64] / scale).max() < 0.05


def _run_layer(weight: IntegerWeight, form: InputForm, x: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
    import onnxruntime as ort

    width_in, width_out = weight.values.shape
    source = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, None, width_in])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, None, width_out])
    nodes = [helper.make_node("MatMul", ["x", "layer"], ["y"], name="layer")]
    plain = numpy_helper.from_array(weight.dequantized(), "layer")
    model = helper.make_model(
        helper.make_graph(nodes, "one", [source], [result], [plain]),
        opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid(CONTRIB, 1)],
        ir_version=10,
    )
    graph = Graph(model)
    IntegerLowering(graph, "u8u8").lower("layer", weight, form)
    graph.finish()
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": x})[0][0])


def test_gptq_beats_rounding_to_nearest_on_correlated_inputs() -> None:
    rng = np.random.default_rng(2)
    mixing = rng.standard_normal((12, 128))
    x = (rng.standard_normal((600, 12)) @ mixing + 0.1 * rng.standard_normal((600, 128))).astype(
        np.float32
    )
    weight = rng.standard_normal((128, 40)).astype(np.float32)
    errors = {}
    for name, rounded in (
        ("nearest", round_nearest(weight)),
        ("gptq", round_gptq(weight, x.T @ x)),
    ):
        assert np.abs(rounded.values).max() <= 127
        assert np.abs(rounded.dequantized() - weight).max() < 20 * rounded.scales.max()
        errors[name] = float(np.square(x @ (rounded.dequantized() - weight)).mean())
    assert errors["gptq"] < 0.5 * errors["nearest"]


def test_rounding_of_zero_columns_and_exact_weights() -> None:
    weight = np.zeros((8, 3), np.float32)
    weight[:, 1] = np.arange(8) - 127.0
    for rounded in (round_nearest(weight), round_gptq(weight, np.eye(8, dtype=np.float32))):
        np.testing.assert_allclose(rounded.dequantized(), weight, rtol=1e-6)


def test_static_scale_clips_rare_values_and_keeps_even_ones() -> None:
    rng = np.random.default_rng(4)
    even = rng.uniform(-1, 1, (200, 50)).astype(np.float32)
    assert static_scale(even, 127) == pytest.approx(1 / 127, rel=0.05)
    normal = rng.standard_normal((2000, 50)).astype(np.float32)
    assert 3.3 / 127 < static_scale(normal, 127) < 4.5 / 127


@pytest.fixture(scope="module")
def quantized(model: onnx.ModelProto) -> onnx.ModelProto:
    context = CalibrationContext(encode=list, render=None, bos_id=0, eos_ids=())  # type: ignore[arg-type]
    return to_w8a8(model, "u8u8", _texts(), context)


def test_w8a8_graph_has_only_integer_layers_and_close_logits(
    model: onnx.ModelProto, quantized: onnx.ModelProto
) -> None:
    kinds = [node.op_type for node in quantized.graph.node]
    assert kinds.count("MatMulIntegerToFloat") == 4 * LAYERS + 1
    # What is left in floating point: the rotation of down's input.
    assert kinds.count("MatMul") == LAYERS
    stored = {i.name: i.data_type for i in quantized.graph.initializer}
    assert stored["layers.0.gate_up"] == stored["lm_head"] == TensorProto.UINT8
    ids = _texts(1, 60)[0][::-1]
    every = Features(hidden=True, tap_layers=tuple(range(LAYERS + 1)))
    before, after = (_outputs(add_features(graph, every), ids) for graph in (model, quantized))
    for name in ("logits", "hidden.0", "taps.0"):
        assert np.abs(after[name] - before[name]).std() < 0.06 * before[name].std()


def test_w8a8_rows_do_not_depend_on_their_neighbours(quantized: onnx.ModelProto) -> None:
    """Whole, in chunks and packed with others: the same bits, in logits and features."""
    ids = _texts(1, 130)[0]
    with on_disk(add_features(quantized, Features(True, (0, 1, 2)))) as stored:
        runner = stored.runner(1, CONTEXT)
        whole = runner.run([RowStep(ids)])
        for width in (2, 3, 5, 64):
            chunks = _in_chunks(runner, ids, width)
            for name in ("logits", "hidden.0", "taps.0"):
                joined = np.concatenate([chunk[name] for chunk in chunks])
                np.testing.assert_array_equal(joined, whole[name])
        lone = runner.run([RowStep(ids[60:65], 60)], [2])["logits"]
        np.testing.assert_array_equal(lone[0], whole["logits"][62])
        packed = stored.runner(2, CONTEXT)
        packed.run([RowStep(ids[:40]), RowStep(ids[:100])])
        both = packed.run([RowStep(ids[40:42], 40), RowStep(ids[100:107], 100)])
        expected = np.concatenate([whole["logits"][40:42], whole["logits"][100:107]])
        np.testing.assert_array_equal(both["logits"], expected)
        for name in ("hidden", "taps"):
            for row, (begin, end) in enumerate(((40, 42), (100, 107))):
                expected = whole[f"{name}.0"][begin:end]
                np.testing.assert_array_equal(both[f"{name}.{row}"], expected)


def _in_chunks(runner: GraphRunner, ids: list[int], width: int) -> list[dict[str, Any]]:
    chunks, past = [], 0
    while past < len(ids):
        end = len(ids) if len(ids) - past - width < 2 else past + width
        chunks.append(runner.run([RowStep(ids[past:end], past)]))
        past = end
    return chunks


def test_no_logits_wanted_gives_none(quantized: onnx.ModelProto) -> None:
    with on_disk(quantized) as stored:
        result = stored.runner(1, CONTEXT).run([RowStep([1, 2, 3])], [])
    assert result["logits"].shape == (0, VOCAB)


def test_quality_of_the_graph_itself_is_perfect_and_of_noise_is_not(
    model: onnx.ModelProto,
) -> None:
    answers = [Answer(tuple(text[:8]), tuple(text[8:])) for text in _texts(3)]
    with on_disk(model) as stored, on_disk(_small_model(seed=9)) as other:
        reference = reference_of(stored, answers)
        same = measure_quality(stored, reference)
        different = measure_quality(other, reference)
    assert same["agreement"] == 1.0
    assert same["kl_mean"] == pytest.approx(0.0, abs=1e-6)
    assert same["tokens"] == 3 * 40
    assert different["agreement"] < 0.5
    assert different["kl_mean"] > 0.1
    require_quality(same)
    with pytest.raises(UserError, match="agrees with fp32") as caught:
        require_quality(different)
    assert caught.value.code == "quality_too_low"


def test_kl_is_the_mean_over_tokens(model: onnx.ModelProto) -> None:
    answer = Answer((1, 2, 3, 4), (5, 6))
    with on_disk(model) as stored:
        measured = reference_of(stored, [answer]).log_probabilities[0]
        uniform = np.full_like(measured, -np.log(VOCAB))
        figures = measure_quality(stored, Reference((answer,), (uniform,)))
    expected = (-np.log(VOCAB) - measured).mean()
    assert figures["kl_mean"] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("weight_type", ["w8a8", "int8", "int4"])
def test_quantize_measures_what_it_returns(
    model: onnx.ModelProto,
    context: CalibrationContext,
    weight_type: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(weight_types, "CALIBRATION", ("one", "two"))
    monkeypatch.setattr(weight_types, "HELD_OUT", ("three", "four", "five"))
    monkeypatch.setattr(weight_types, "require_quality", lambda figures: None)
    before = model.SerializeToString()
    stored, figures, form = quantize(model, weight_type, context)
    assert model.SerializeToString() == before
    assert form == (integer_form() if weight_type == "w8a8" else None)
    assert figures["tokens"] >= 3
    # A random model has many near ties; by chance alone it would be 1 / VOCAB.
    assert figures["agreement"] > (0.75 if weight_type != "int4" else 0.15)
    kinds = {node.op_type for node in stored.graph.node}
    assert ("MatMulIntegerToFloat" if weight_type == "w8a8" else "MatMulNBits") in kinds
    again, same, _ = quantize(model, weight_type, context)
    assert again.SerializeToString(deterministic=True) == stored.SerializeToString(
        deterministic=True
    )
    assert same == figures


def test_fp32_passes_and_unknown_types_do_not(
    model: onnx.ModelProto, context: CalibrationContext
) -> None:
    assert quantize(model, "fp32", context) == (model, {}, None)
    with pytest.raises(UserError, match="w9a9"):
        quantize(model, "w9a9", context)
