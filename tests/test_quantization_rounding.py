"""Weights rounded to integers, and products of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from export.graph import CONTRIB, Graph
from export.quantization.integer import InputForm, IntegerLowering
from export.quantization.rotation import rotate_blocks
from export.quantization.rounding import IntegerWeight, round_gptq, round_nearest
from export.quantization.statistics import static_scale


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
