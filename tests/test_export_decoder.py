"""Every supported architecture, traced and canonical, against torch: whole, chunked, packed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

from export.checkpoint import Checkpoint, inspect_source, load_checkpoint
from export.decoder import TOP_K, trace_decoder
from export.parity import check_rows, reference_logits, run_in_chunks
from export.passes import canonicalise
from export.rows import derive_rows, narrowest_window
from export.runner import GraphRunner, RowStep
from export.sources import locate
from export.stored import write_graphs
from export.tree_parity import check_trees
from export.writer import externalise, save_graph
from models.errors import UserError
from models.memory import PAD_TOKENS
from tests.checkpoints import ARCHITECTURES, VOCABULARY, make_checkpoint

TOLERANCE = 1e-3
CONTEXT = 128


@dataclass(frozen=True)
class Exported:
    name: str
    checkpoint: Checkpoint
    graph: onnx.ModelProto
    directory: Path

    def runner(self, rows: int = 1) -> GraphRunner:
        return GraphRunner(self.directory / f"r{rows}.onnx", capacity=CONTEXT)


@pytest.fixture(scope="module", params=sorted(ARCHITECTURES))
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    directory = tmp_path_factory.mktemp(request.param)
    source = locate(str(make_checkpoint(directory / "checkpoint", request.param)))
    checkpoint = load_checkpoint(source, inspect_source(source))
    traced = trace_decoder(checkpoint.model, checkpoint.architecture, CONTEXT, directory)
    graph = canonicalise(traced)
    skeleton = externalise(graph, directory / "weights")
    for rows in (1, 2, 4):
        save_graph(derive_rows(skeleton, rows), directory / f"r{rows}.onnx")
        save_graph(derive_rows(skeleton, rows, trees=True), directory / f"tree.r{rows}.onnx")
    return Exported(request.param, checkpoint, graph, directory)


def prompt(length: int, seed: int = 0) -> list[int]:
    return [int(t) for t in np.random.default_rng(seed).integers(3, VOCABULARY, length)]


def torch_logits(exported: Exported, ids: list[int]) -> np.ndarray:
    with torch.no_grad():
        return np.asarray(exported.checkpoint.model(torch.tensor([ids])).logits[0])


def test_whole_prompt_matches_torch(exported: Exported) -> None:
    ids = prompt(60)
    logits = torch_logits(exported, ids)
    found = exported.runner().run([RowStep(ids)])
    assert np.abs(found["logits"] - logits).max() < TOLERANCE
    assert (found["logits"].argmax(-1) == logits.argmax(-1)).all()
    assert not any(name.startswith(("hidden", "taps")) for name in found)


def test_chunks_with_cache_match_torch(exported: Exported) -> None:
    ids = prompt(60, seed=1)
    logits = torch_logits(exported, ids)
    found = run_in_chunks(exported.runner(), ids)
    assert np.abs(found - logits).max() < TOLERANCE
    assert (found.argmax(-1) == logits.argmax(-1)).all()


def test_head_outputs_follow_from_the_logits(exported: Exported) -> None:
    found = exported.runner().run([RowStep(prompt(20, seed=2))], wanted=[3, 19])
    logits = found["logits"].astype(np.float64)
    assert logits.shape == (2, VOCABULARY)
    assert found["top_ids"].shape == found["top_values"].shape == (2, TOP_K)
    assert (found["top_values"] == -np.sort(-found["logits"], axis=-1)[:, :TOP_K]).all()
    picked = np.take_along_axis(found["logits"], found["top_ids"], axis=-1)
    assert (picked == found["top_values"]).all()
    assert np.abs(found["logsumexp"] - np.log(np.exp(logits).sum(-1))).max() < 1e-5


def test_no_logits_are_computed_when_none_are_wanted(exported: Exported) -> None:
    found = exported.runner().run([RowStep(prompt(5))], wanted=[])
    assert found["logits"].shape == (0, VOCABULARY)
    assert found["top_ids"].shape == (0, TOP_K)
    assert found["logsumexp"].shape == (0,)


def test_rows_equal_the_single_row_bit_for_bit(exported: Exported) -> None:
    reference = reference_logits(exported.checkpoint.model, exported.checkpoint.encode, CONTEXT)
    several = {rows: exported.directory / f"r{rows}.onnx" for rows in (2, 4)}
    figures = check_rows(exported.directory / "r1.onnx", several, reference)
    assert figures == {"rows_max_abs": 0.0}


def test_trees_equal_their_paths_wherever_no_window_slides(exported: Exported) -> None:
    """A sliding window counts siblings too: such models have no graphs for trees."""
    reference = reference_logits(exported.checkpoint.model, exported.checkpoint.encode, CONTEXT)
    chains, trees = (
        {rows: exported.directory / f"{kind}r{rows}.onnx" for rows in (1, 2, 4)}
        for kind in ("", "tree.")
    )
    windowed = exported.name in ("mistral", "gemma2", "gemma3")
    assert narrowest_window(exported.graph) == (8 if windowed else None)
    files = write_graphs(exported.graph, exported.directory, (), CONTEXT, "cuda")
    assert (files.compact is None) == windowed
    if windowed:
        with pytest.raises(UserError, match="a graph for trees differs"):
            check_trees(chains, trees, reference)
    else:
        figures = check_trees(chains, trees, reference)
        assert figures["tree_zero_bias_max_abs"] == 0.0
        assert 0.0 < figures["tree_max_abs"] < 1e-4


def test_the_last_position_has_a_pad_behind_it(exported: Exported) -> None:
    """A lone last token of a full context is run with a pad, which needs a position too."""
    ids = prompt(CONTEXT, seed=4)
    logits = torch_logits(exported, ids)
    runner = GraphRunner(exported.directory / "r1.onnx", capacity=CONTEXT + PAD_TOKENS)
    runner.run([RowStep(ids[:-1])])
    found = runner.run([RowStep([ids[-1], ids[-1]], CONTEXT - 1)])["logits"][0]
    assert np.abs(found - logits[-1]).max() < TOLERANCE


def test_no_shape_arithmetic_survives(exported: Exported) -> None:
    kinds = Counter(node.op_type for node in exported.graph.graph.node)
    assert not kinds.keys() & {"Shape", "Unsqueeze", "Concat", "Transpose", "Constant", "Identity"}
    assert kinds["MatMul"] == 2 * 4 + 1
    # The head: logits, log-sum-exp. Norms of q and k need one view before and one after.
    per_head_norms = 2 * 2 if exported.name in ("qwen3", "gemma3") else 0
    assert kinds["Reshape"] == 2 + 2 * per_head_norms
    assert kinds["Gather"] == 2


def test_names_are_the_interface_to_quantisation(exported: Exported) -> None:
    names = {tensor.name for tensor in exported.graph.graph.initializer}
    expected = {"embedding", "final_norm", "lm_head"}
    for layer in range(2):
        parts = ("qkv", "o", "gate_up", "down", "attention_norm", "mlp_norm")
        expected |= {f"layers.{layer}.{part}" for part in parts}
    assert expected <= names
    for node in exported.graph.graph.node:
        if node.op_type == "MatMul":
            assert node.name == node.input[1]
    attention = [n for n in exported.graph.graph.node if n.op_type == "GroupQueryAttention"]
    assert [node.name for node in attention] == ["layers.0.attention.0", "layers.1.attention.0"]
    packed = exported.name not in ("qwen3", "gemma3")
    assert all((node.input[1] == "") == packed for node in attention)


def attention_nodes(exported: Exported) -> list[onnx.NodeProto]:
    return [n for n in exported.graph.graph.node if n.op_type == "GroupQueryAttention"]


def test_sliding_windows_forget_what_lies_behind_them(exported: Exported) -> None:
    """Two layers of window 8 see 14 tokens back; one full layer sees everything."""
    ids = prompt(40, seed=3)
    changed = [ids[0] - 1 if ids[0] > 3 else 4, *ids[1:]]
    runner = exported.runner()
    logits = [runner.run([RowStep(row)])["logits"][20:] for row in (ids, changed)]
    assert (logits[0] == logits[1]).all() == (exported.name == "mistral")


def test_each_layer_rotates_as_the_checkpoint_says(exported: Exported) -> None:
    rotary = [
        [a.i for a in node.attribute if a.name == "do_rotary"] for node in attention_nodes(exported)
    ]
    assert rotary == [[1], [0] if exported.name == "smollm3" else [1]]
    tables = {node.input[7] for node in attention_nodes(exported) if len(node.input) > 7}
    assert len(tables) == (2 if exported.name == "gemma3" else 1)
