"""Rotations of the residual stream and of values: what they keep, and where they are possible."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from export.features import Features, add_features
from export.graph import Graph
from export.quantization.folding import can_rotate, rotate_stream, rotate_values
from export.quantization.rotation import hadamard, rotate_blocks, rotation
from export.quantization.scratch import on_disk
from export.quantization.w8a8 import to_w8a8
from export.runner import RowStep
from tests.quantization_graph import (
    CONTEXT,
    HIDDEN,
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
    ids = random_texts(1)[0]
    work = onnx.ModelProto()
    work.CopyFrom(model)
    graph = Graph(work)
    assert can_rotate(graph)
    rotate_stream(graph, 1)
    rotate_values(graph, 2)
    graph.finish()
    every = Features(hidden=True, tap_layers=tuple(range(LAYERS + 1)))
    before, after = (outputs_of(add_features(graph, every), ids) for graph in (model, work))
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
    model: onnx.ModelProto,
) -> None:
    sandwich = _with_norm_after_attention(model)
    assert not can_rotate(Graph(sandwich))
    stored = to_w8a8(sandwich, "u8u8", random_texts(), small_context())
    kinds = [node.op_type for node in stored.graph.node]
    assert kinds.count("MatMulIntegerToFloat") == 4 * LAYERS + 1
    embedding = next(i for i in stored.graph.initializer if i.name == "embedding")
    original = next(i for i in model.graph.initializer if i.name == "embedding")
    assert embedding.raw_data == original.raw_data
    ids = random_texts(1, 60)[0][::-1]
    before, after = (outputs_of(graph, ids)["logits"] for graph in (sandwich, stored))
    assert after.shape == before.shape
    assert np.abs(after - before).std() < 0.06 * before.std()
    with on_disk(stored) as disk:
        assert disk.runner(1, CONTEXT).run([RowStep(ids)], [])["logits"].shape == (0, VOCAB)
