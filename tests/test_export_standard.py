"""The standard lowering against the contrib one and torch, on the CPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from export.checkpoint import inspect_source, load_checkpoint
from export.decoder import trace_decoder
from export.half import to_half
from export.parity import Reference, check_parity, check_rows, reference_logits
from export.passes import canonicalise
from export.quantization.nbits import to_nbits
from export.rows import derive_rows, narrowest_window
from export.runner import GraphRunner, RowStep
from export.sources import locate
from export.standard import OPSET, to_standard
from export.writer import externalise, save_graph
from models.errors import UserError
from tests.checkpoints import make_checkpoint

CONTEXT = 192


@pytest.fixture(scope="module", params=["llama", "qwen2", "qwen3", "phi3"])
def traced(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[onnx.ModelProto, Reference, Path]:
    directory = tmp_path_factory.mktemp("standard")
    source = locate(str(make_checkpoint(directory / "checkpoint", request.param)))
    checkpoint = load_checkpoint(source, inspect_source(source))
    reference = reference_logits(checkpoint.model, checkpoint.encode, CONTEXT)
    graph = canonicalise(
        trace_decoder(checkpoint.model, checkpoint.architecture, CONTEXT, directory)
    )
    return externalise(graph, directory / "target.weights"), reference, directory


@pytest.mark.parametrize("fused", [True, False])
def test_it_agrees_with_torch_and_with_the_contrib_graphs(
    traced: tuple[onnx.ModelProto, Reference, Path], fused: bool
) -> None:
    skeleton, reference, directory = traced
    standard = to_standard(derive_rows(skeleton, 1), fused=fused)
    assert {node.domain for node in standard.graph.node} == {""}
    assert [known.version for known in standard.opset_import] == [OPSET]
    for name, model in (("standard", standard), ("contrib", derive_rows(skeleton, 1))):
        save_graph(model, directory / f"{name}.onnx")
    onnx.checker.check_model(str(directory / "standard.onnx"))
    figures = check_parity(directory / "standard.onnx", reference)
    assert figures["argmax_agreement"] == 1.0
    ids = reference.prompts[0]
    capacity = len(ids) + 8
    found, expected = (
        GraphRunner(directory / f"{name}.onnx", capacity=capacity).run([RowStep(ids)])
        for name in ("standard", "contrib")
    )
    assert np.abs(found["logits"] - expected["logits"]).max() < reference.tolerance
    assert (found["top_ids"][:, 0] == expected["top_ids"][:, 0]).all()
    assert np.abs(found["logsumexp"] - expected["logsumexp"]).max() < reference.tolerance


@pytest.mark.parametrize("fused", [True, False])
def test_several_rows_are_those_of_one(
    traced: tuple[onnx.ModelProto, Reference, Path], fused: bool
) -> None:
    skeleton, reference, directory = traced
    paths = {}
    for rows in (1, 2):
        paths[rows] = directory / f"rows{rows}.onnx"
        save_graph(to_standard(derive_rows(skeleton, rows), fused=fused), paths[rows])
    check_rows(paths.pop(1), paths, reference)


@pytest.mark.parametrize("fused", [True, False])
def test_half_precision_is_near(
    traced: tuple[onnx.ModelProto, Reference, Path], fused: bool
) -> None:
    skeleton, reference, directory = traced
    whole = onnx.ModelProto()
    whole.CopyFrom(skeleton)
    onnx.load_external_data_for_model(whole, str(directory))
    half = externalise(to_half(whole), directory / "half.weights")
    path = directory / "half.onnx"
    save_graph(to_standard(derive_rows(half, 1), fused=fused), path)
    figures = check_parity(path, reference, slack=50.0)
    assert figures["argmax_agreement"] > 0.9


@pytest.mark.parametrize("fused", [True, False])
def test_capped_scores_and_windows_are_kept(tmp_path: Path, fused: bool) -> None:
    """Gemma 2 caps scores, and every other layer sees a window that these prompts leave."""
    source = locate(str(make_checkpoint(tmp_path / "checkpoint", "gemma2")))
    checkpoint = load_checkpoint(source, inspect_source(source))
    graph = canonicalise(trace_decoder(checkpoint.model, checkpoint.architecture, 64, tmp_path))
    window = narrowest_window(graph)
    reference = reference_logits(checkpoint.model, checkpoint.encode, 48)
    assert window is not None
    assert window < max(map(len, reference.prompts))
    skeleton = externalise(graph, tmp_path / "target.weights")
    save_graph(to_standard(derive_rows(skeleton, 1), fused=fused), tmp_path / "graph.onnx")
    check_parity(tmp_path / "graph.onnx", reference)


def test_what_has_no_standard_form_is_refused(
    traced: tuple[onnx.ModelProto, Reference, Path],
) -> None:
    skeleton, _, directory = traced
    whole = onnx.ModelProto()
    whole.CopyFrom(skeleton)
    onnx.load_external_data_for_model(whole, str(directory))
    with pytest.raises(UserError, match="MatMulNBits"):
        to_standard(derive_rows(to_nbits(whole, 4, symmetric=True), 1))
    with pytest.raises(UserError, match="trees"):
        to_standard(derive_rows(skeleton, 1, trees=True))
