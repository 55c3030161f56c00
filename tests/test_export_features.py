"""Features of the target's graphs against torch: the right layer, the right basis, every row."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper

from export.checkpoint import Checkpoint, inspect_source, load_checkpoint
from export.compact import check_compact, compact_graph
from export.decoder import trace_decoder
from export.feature_parity import check_features, torch_features, with_features
from export.features import (
    Features,
    add_features,
    add_taps,
    default_tap_layers,
    needed,
    without_features,
)
from export.half import to_half
from export.parity import check_rows, reference_logits
from export.passes import canonicalise
from export.quantization import CalibrationContext
from export.quantization.basis import noted_basis
from export.quantization.w8a8 import to_w8a8
from export.rows import derive_rows
from export.runner import GraphRunner, RowStep
from export.sources import locate
from export.stored import FEATURE_WEIGHTS, give_features
from export.writer import externalise, save_graph
from models.errors import UserError
from tests.checkpoints import make_checkpoint

CONTEXT, LAYERS, HIDDEN = 128, 4, 64
WANTED = Features(hidden=True, tap_layers=(0, 2, 3))
EVERYTHING = Features(hidden=True, tap_layers=tuple(range(LAYERS + 1)))


@dataclass(frozen=True)
class Exported:
    checkpoint: Checkpoint
    graph: onnx.ModelProto
    directory: Path

    def write(self, graph: onnx.ModelProto, features: Features, name: str, rows: int = 1) -> Path:
        """The graph for `rows` rows, with its own weights."""
        place = self.directory / name
        place.mkdir(exist_ok=True)
        skeleton = give_features(externalise(graph, place / "weights"), features, place)
        for trees in (False, True):
            path = place / f"{'tree.' if trees else ''}r{rows}.onnx"
            save_graph(derive_rows(skeleton, rows, trees=trees), path)
        return place / f"r{rows}.onnx"


@pytest.fixture(scope="module", params=["llama", "gemma2", "qwen3", "phi3"])
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    directory = tmp_path_factory.mktemp(request.param)
    changes: dict[str, Any] = {"num_hidden_layers": LAYERS}
    if request.param == "gemma2":
        changes["layer_types"] = ["full_attention"] * LAYERS
    path = make_checkpoint(directory / "checkpoint", request.param, **changes)
    source = locate(str(path))
    checkpoint = load_checkpoint(source, inspect_source(source))
    traced = trace_decoder(checkpoint.model, checkpoint.architecture, CONTEXT, directory)
    return Exported(checkpoint, canonicalise(traced), directory)


@pytest.fixture(scope="module")
def rotated(exported: Exported) -> onnx.ModelProto:
    encode = exported.checkpoint.encode
    context = CalibrationContext(encode=encode, render=None, bos_id=0, eos_ids=())
    texts = [prompt(100, seed) for seed in range(4)]
    return to_w8a8(exported.graph, "u8u8", texts, context)


def prompt(length: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(3, 300, length).tolist()


def run(path: Path, *steps: RowStep) -> dict[str, Any]:
    return GraphRunner(path, capacity=CONTEXT).run(steps)


def test_taps_are_the_hidden_states_that_transformers_lists(exported: Exported) -> None:
    """Entry l of its list enters layer l."""
    ids = prompt(60)
    found = run(exported.write(exported.graph, EVERYTHING, "plain"), RowStep(ids))
    with torch.no_grad():
        decoder = exported.checkpoint.model.get_decoder()
        listed = decoder(torch.tensor([ids]), output_hidden_states=True)
    states = [state[0].numpy() for state in listed.hidden_states]
    assert len(states) == LAYERS + 1
    last = listed.last_hidden_state[0].numpy()
    taps = np.split(found["taps.0"], LAYERS + 1, axis=1)
    for tap, state in zip(taps[:-1], states[:-1], strict=True):
        np.testing.assert_allclose(tap, state, atol=1e-4 * state.std())
    np.testing.assert_allclose(found["hidden.0"], last, atol=1e-4 * last.std())
    expected = torch_features(exported.checkpoint.model, tuple(ids), EVERYTHING)["taps"]
    np.testing.assert_allclose(taps[-1], expected[:, -HIDDEN:], atol=1e-4 * taps[-1].std())


def test_features_leave_every_bit_of_the_logits(
    exported: Exported, rotated: onnx.ModelProto
) -> None:
    for name, graph in (("fp32", exported.graph), ("w8a8", rotated)):
        paths = [
            exported.write(graph, features, f"{name}-{bool(features)}", rows)
            for features in (Features(), WANTED)
            for rows in (1, 2)
        ]
        steps = [RowStep(prompt(40)), RowStep(prompt(17, seed=1))]
        without, packed_without, given, packed = (
            run(path, *steps[: 1 + (path.name == "r2.onnx")]) for path in paths
        )
        for one, other in ((without, given), (packed_without, packed)):
            assert set(one) == {"logits", "top_values", "top_ids", "logsumexp"}
            for output, values in one.items():
                np.testing.assert_array_equal(values, other[output])


def test_rows_have_the_features_of_their_own_tokens(
    exported: Exported, rotated: onnx.ModelProto
) -> None:
    long, short = prompt(40), prompt(18, seed=1)
    for name, graph in (("fp32", exported.graph), ("w8a8", rotated)):
        single = exported.write(graph, WANTED, name)
        packed = run(exported.write(graph, WANTED, name, 2), RowStep(short), RowStep(long))
        for row, ids in enumerate((short, long)):
            alone = run(single, RowStep(ids))
            for feature, width in (("hidden", HIDDEN), ("taps", 3 * HIDDEN)):
                assert packed[f"{feature}.{row}"].shape == (len(ids), width)
                np.testing.assert_array_equal(packed[f"{feature}.{row}"], alone[f"{feature}.0"])


def test_a_tree_gives_its_nodes_the_features_of_their_paths(exported: Exported) -> None:
    single = exported.write(exported.graph, WANTED, "trees")
    prefix, nodes = prompt(20), prompt(3, seed=2)
    runner = GraphRunner(single.with_name("tree.r1.onnx"), capacity=CONTEXT)
    runner.run([RowStep(prefix)])
    tree = runner.run([RowStep(nodes, len(prefix), (-1, 0, 0))])
    for leaf in (1, 2):
        chain = run(single, RowStep([*prefix, nodes[0], nodes[leaf]]))
        for name in ("hidden.0", "taps.0"):
            for node, place in ((0, -2), (leaf, -1)):
                np.testing.assert_allclose(tree[name][node], chain[name][place], atol=1e-3)


def test_the_export_checks_taps_and_refuses_a_neighbouring_layer(exported: Exported) -> None:
    model, encode = exported.checkpoint.model, exported.checkpoint.encode
    reference = with_features(reference_logits(model, encode, CONTEXT), model, WANTED)
    right = exported.write(exported.graph, WANTED, "right")
    figures = check_features(right, reference)
    assert set(figures) == {"hidden_max_rel", "taps_max_rel"}
    assert max(figures.values()) < 1e-3
    several = {2: exported.write(exported.graph, WANTED, "right", 2)}
    assert check_rows(right, several, reference)["rows_features_max_rel"] == 0.0
    for layers in ((1, 2, 3), (0, 1, 3), (0, 2, 4), (2, 0, 3)):
        other = dataclasses.replace(WANTED, tap_layers=layers)
        path = exported.write(exported.graph, other, "wrong")
        with pytest.raises(UserError, match="features of the graph differ from torch"):
            check_features(path, reference)


def test_another_basis_is_noticed_in_rounded_weights_too(
    exported: Exported, rotated: onnx.ModelProto
) -> None:
    if noted_basis(rotated) is None:
        assert exported.checkpoint.model_type == "gemma2", "whose norms do not commute"
        return
    silent = onnx.ModelProto()
    silent.CopyFrom(rotated)
    del silent.metadata_props[:]
    model, encode = exported.checkpoint.model, exported.checkpoint.encode
    for features in (Features(hidden=True), Features(tap_layers=(1,))):
        reference = with_features(reference_logits(model, encode, CONTEXT), model, features)
        with pytest.raises(UserError, match="features of the graph differ from torch"):
            check_features(exported.write(silent, features, "silent"), reference, rounded=True)


def test_features_of_rounded_weights_are_near(exported: Exported, rotated: onnx.ModelProto) -> None:
    model, encode = exported.checkpoint.model, exported.checkpoint.encode
    reference = with_features(reference_logits(model, encode, CONTEXT), model, WANTED)
    figures = check_features(exported.write(rotated, WANTED, "near"), reference, rounded=True)
    assert 0 < figures["taps_mean_rel"] < 0.25
    assert 0 < figures["hidden_mean_rel"] < 0.25


def test_a_stored_graph_says_itself_how_it_is_rotated(
    exported: Exported, rotated: onnx.ModelProto, tmp_path: Path
) -> None:
    """Features can be given to a package long after it was made, and taken away again."""
    skeleton = externalise(rotated, tmp_path / "target.weights")
    save_graph(derive_rows(skeleton, 1), tmp_path / "plain.onnx")
    size = (tmp_path / "target.weights").stat().st_size
    stored = onnx.load(tmp_path / "plain.onnx", load_external_data=False)
    for features in (WANTED, EVERYTHING):
        stored = give_features(without_features(stored), features, tmp_path)
        save_graph(derive_rows(stored, 1), tmp_path / "given.onnx")
        stored = onnx.load(tmp_path / "given.onnx", load_external_data=False)
        ids = prompt(30)
        direct = run(exported.write(rotated, features, "direct"), RowStep(ids))
        given = run(tmp_path / "given.onnx", RowStep(ids))
        for name in ("logits", "hidden.0", "taps.0"):
            np.testing.assert_array_equal(given[name], direct[name])
    assert (tmp_path / "target.weights").stat().st_size == size
    turned = exported.checkpoint.model_type != "gemma2"
    assert (tmp_path / FEATURE_WEIGHTS).exists() == turned
    bare = without_features(stored)
    assert {i.name for i in bare.graph.initializer} == {i.name for i in skeleton.graph.initializer}
    assert len(bare.graph.node) == len(skeleton.graph.node)


def test_half_precision_features_are_half_too(exported: Exported) -> None:
    half = add_features(to_half(exported.graph), WANTED)
    types = {value.name: value.type.tensor_type.elem_type for value in half.graph.output}
    assert types["hidden"] == types["taps"] == onnx.TensorProto.FLOAT16
    ids = prompt(40)
    found = run(exported.write(to_half(exported.graph), WANTED, "half"), RowStep(ids))
    expected = torch_features(exported.checkpoint.model, tuple(ids), WANTED)
    for name, values in expected.items():
        assert found[f"{name}.0"].dtype == np.float16
        assert np.abs(found[f"{name}.0"] - values).mean() < 0.01 * np.abs(values).mean()


def test_taps_alone(exported: Exported) -> None:
    skeleton = add_taps(exported.graph, [2])
    assert [o.name for o in skeleton.graph.output if "." not in o.name][-1] == "taps"
    with pytest.raises(AssertionError, match="of 4 layers"):
        add_taps(exported.graph, [LAYERS + 1])


def test_what_drafters_need() -> None:
    assert not needed([None, None], ())
    assert needed(["hidden", None], (1, 2, 3)) == Features(hidden=True)
    assert needed(["taps", "hidden"], (1, 2, 3)) == Features(True, (1, 2, 3))
    assert Features(True) | Features(False, (1, 2)) == Features(True, (1, 2))
    assert Features(True, (1, 2)).widths(8) == {"hidden": 8, "taps": 16}
    assert Features().widths(8) == {}
    with pytest.raises(AssertionError, match="one set of taps"):
        Features(False, (1,)) | Features(False, (2,))


def test_layers_tapped_by_default() -> None:
    assert default_tap_layers(30) == (2, 15, 27)
    assert default_tap_layers(2) == (2, 1, 0)


def test_the_graph_that_compacts_moves_features_too(exported: Exported, tmp_path: Path) -> None:
    model = compact_graph(add_features(to_half(exported.graph), WANTED))
    names = [value.name for value in model.graph.input]
    assert names[-2:] == ["feature.hidden", "feature.taps"]
    assert names[2:-2] == [name for name in names if name.startswith("past.")]
    assert [v.name for v in model.graph.output][-2:] == ["moved.hidden", "moved.taps"]
    path = tmp_path / "compact.onnx"
    save_graph(model, path)
    check_compact(path)
    for tensor in model.graph.initializer:
        if tensor.name in ("begin", "end"):  # heads in the place of positions
            column = {"begin": [0, 1], "end": [1, 2]}[tensor.name]
            tensor.CopyFrom(numpy_helper.from_array(np.array(column, np.int64), tensor.name))
    save_graph(model, path)
    with pytest.raises(UserError, match="moves something else"):
        check_compact(path)
