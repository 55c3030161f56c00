"""fp16 graphs for CUDA, checked on the CPU, which runs them slowly."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from export.checkpoint import inspect_source, load_checkpoint
from export.decoder import trace_decoder
from export.half import to_half
from export.passes import canonicalise
from export.quantization.nbits import to_nbits
from export.rows import derive_rows
from export.runner import GraphRunner, RowStep
from export.sources import locate
from export.writer import externalise, save_graph
from tests.checkpoints import make_checkpoint

FLOAT, HALF = onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16


@pytest.fixture(scope="module", params=["llama", "gemma2"])
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[onnx.ModelProto, onnx.ModelProto, Path]:
    directory = tmp_path_factory.mktemp("half")
    source = locate(str(make_checkpoint(directory / "checkpoint", request.param)))
    checkpoint = load_checkpoint(source, inspect_source(source))
    graph = canonicalise(trace_decoder(checkpoint.model, checkpoint.architecture, 128, directory))
    half = to_half(graph)
    for name, model in (("plain", graph), ("half", half)):
        skeleton = externalise(model, directory / f"{name}.weights")
        save_graph(derive_rows(skeleton, 1), directory / f"{name}.onnx")
    return graph, half, directory


def test_only_the_head_stays_in_float32(
    pair: tuple[onnx.ModelProto, onnx.ModelProto, Path],
) -> None:
    plain, half, _ = pair
    types = {value.name: value.type.tensor_type.elem_type for value in half.graph.output}
    assert types["logits"] == types["top_values"] == types["logsumexp"] == FLOAT
    assert types["present.1.0.value"] == HALF
    kinds = {tensor.name: tensor.data_type for tensor in half.graph.initializer}
    assert kinds["lm_head"] == kinds["layers.1.qkv"] == kinds["rotary.0.cos"] == HALF
    before = {tensor.name: tensor.data_type for tensor in plain.graph.initializer}
    assert before["lm_head"] == FLOAT, "the fp32 graph was changed"


def test_logits_are_near_the_fp32_graphs(
    pair: tuple[onnx.ModelProto, onnx.ModelProto, Path],
) -> None:
    *_, directory = pair
    ids = [int(t) for t in np.random.default_rng(5).integers(3, 300, 48)]
    plain, half = (
        GraphRunner(directory / f"{name}.onnx", capacity=64).run([RowStep(ids)])["logits"]
        for name in ("plain", "half")
    )
    assert half.dtype == np.float32
    worst = np.abs(plain - half).max()
    assert 0 < worst < 0.03 * plain.std()


def test_block_quantised_graphs_are_halved_too(
    pair: tuple[onnx.ModelProto, onnx.ModelProto, Path],
) -> None:
    plain, _, directory = pair
    quantised = to_nbits(plain, 8, symmetric=True)
    for name, model in (("int8", quantised), ("int8-half", to_half(quantised))):
        skeleton = externalise(model, directory / f"{name}.weights")
        save_graph(derive_rows(skeleton, 1), directory / f"{name}.onnx")
    ids = [int(t) for t in np.random.default_rng(6).integers(3, 300, 48)]
    full, half = (
        GraphRunner(directory / f"{name}.onnx", capacity=64).run([RowStep(ids)])["logits"]
        for name in ("int8", "int8-half")
    )
    # The kernel quantises activations: a rounding that goes the other way shows as a larger step.
    assert 0 < np.abs(full - half).mean() < 0.03 * full.std()
    assert (full.argmax(-1) == half.argmax(-1)).mean() > 0.9
