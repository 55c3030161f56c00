"""Quantisation of a whole graph, and how its quality is measured."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from export.features import Features, add_features
from export.quantization import CalibrationContext, quantize, weight_types
from export.quantization.answers import Answer
from export.quantization.quality import (
    Reference,
    measure_quality,
    reference_of,
    require_quality,
    shown,
)
from export.quantization.scratch import on_disk
from export.quantization.w8a8 import to_w8a8
from export.runner import GraphRunner, RowStep
from models.errors import UserError
from models.processor import integer_form
from tests.quantization_graph import (
    CONTEXT,
    LAYERS,
    VOCAB,
    outputs_of,
    random_texts,
    small_context,
    small_model,
)


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    return small_model()


@pytest.fixture
def context() -> CalibrationContext:
    return small_context()


@pytest.fixture(scope="module")
def quantized(model: onnx.ModelProto) -> onnx.ModelProto:
    context = CalibrationContext(encode=list, render=None, bos_id=0, eos_ids=())  # type: ignore[arg-type]
    return to_w8a8(model, "u8u8", random_texts(), context)


def test_w8a8_graph_has_only_integer_layers_and_close_logits(
    model: onnx.ModelProto, quantized: onnx.ModelProto
) -> None:
    kinds = [node.op_type for node in quantized.graph.node]
    assert kinds.count("MatMulIntegerToFloat") == 4 * LAYERS + 1
    # What is left in floating point: the rotation of down's input.
    assert kinds.count("MatMul") == LAYERS
    stored = {i.name: i.data_type for i in quantized.graph.initializer}
    assert stored["layers.0.gate_up"] == stored["lm_head"] == TensorProto.UINT8
    ids = random_texts(1, 60)[0][::-1]
    every = Features(hidden=True, tap_layers=tuple(range(LAYERS + 1)))
    before, after = (outputs_of(add_features(graph, every), ids) for graph in (model, quantized))
    for name in ("logits", "hidden.0", "taps.0"):
        assert np.abs(after[name] - before[name]).std() < 0.06 * before[name].std()


def test_w8a8_rows_do_not_depend_on_their_neighbours(quantized: onnx.ModelProto) -> None:
    """Whole, in chunks and packed with others: the same bits, in logits and features."""
    ids = random_texts(1, 130)[0]
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
    answers = [Answer(tuple(text[:8]), tuple(text[8:])) for text in random_texts(3)]
    with on_disk(model) as stored, on_disk(small_model(seed=9)) as other:
        reference = reference_of(stored, answers)
        same = measure_quality(stored, reference)
        different = measure_quality(other, reference)
    assert same["agreement"] == 1.0
    assert same["kl_mean"] == pytest.approx(0.0, abs=1e-6)
    assert same["tokens"] == 3 * 40
    assert different["agreement"] < 0.5
    assert different["kl_mean"] > 0.1
    assert shown(same).endswith(
        "(at 100.0% of 120 places the most likely token is that of the fp32 model)"
    )
    assert shown({}) == "none measured"
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
