"""Some layers of the target as its drafter: the same model with the others taken out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

from export.checkpoint import Checkpoint, inspect_source, load_checkpoint
from export.decoder import trace_decoder
from export.graph import Graph
from export.passes import canonicalise
from export.quantization import CalibrationContext
from export.quantization.nbits import to_nbits
from export.quantization.w8a8 import to_w8a8
from export.rows import derive_rows
from export.runner import GraphRunner, RowStep
from export.self_speculative import LayerChoice, keep_layers, layer_count, parse_layers
from export.sources import locate
from export.writer import externalise, save_graph
from models.errors import UserError
from models.processor import integer_form
from tests.checkpoints import VOCABULARY, make_checkpoint

LAYERS = 4
CONTEXT = 64
TOLERANCE = 1e-3
_WINDOWS = ["sliding_attention", "full_attention"] * 2
_OVERRIDES: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen3": {},
    "phi3": {},
    "gemma3": {"layer_types": _WINDOWS},
    "smollm3": {"no_rope_layers": [1, 0, 1, 0]},
}


@dataclass(frozen=True)
class Traced:
    checkpoint: Checkpoint
    graph: onnx.ModelProto


def traced(directory: Path, architecture: str) -> Traced:
    path = make_checkpoint(
        directory / "checkpoint",
        architecture,
        num_hidden_layers=LAYERS,
        **_OVERRIDES[architecture],
    )
    source = locate(str(path))
    checkpoint = load_checkpoint(source, inspect_source(source))
    model = trace_decoder(checkpoint.model, checkpoint.architecture, CONTEXT, directory)
    return Traced(checkpoint, canonicalise(model))


@pytest.fixture(scope="module", params=sorted(_OVERRIDES))
def any_target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Traced:
    return traced(tmp_path_factory.mktemp(request.param), request.param)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Traced:
    return traced(tmp_path_factory.mktemp("target"), "llama")


def prompt(length: int, seed: int = 0) -> list[int]:
    return [int(t) for t in np.random.default_rng(seed).integers(3, VOCABULARY, length)]


def runner(model: onnx.ModelProto, directory: Path, **options: Any) -> GraphRunner:
    directory.mkdir(exist_ok=True)
    path = directory / "graph.onnx"
    save_graph(derive_rows(externalise(model, directory / "weights"), 1), path)
    return GraphRunner(path, capacity=CONTEXT, **options)


def logits_of(model: onnx.ModelProto, directory: Path, ids: Sequence[int]) -> np.ndarray:
    found: np.ndarray = runner(model, directory).run([RowStep(ids)])["logits"]
    return found


def torch_logits(checkpoint: Checkpoint, kept: Sequence[int], ids: Sequence[int]) -> np.ndarray:
    """Of the checkpoint's own model, the other layers deleted."""
    decoder = checkpoint.model.get_decoder()
    before = decoder.layers
    decoder.layers = torch.nn.ModuleList([before[layer] for layer in kept])
    try:
        with torch.no_grad():
            output = checkpoint.model(torch.tensor([list(ids)]), use_cache=False)
    finally:
        decoder.layers = before
    return np.asarray(output.logits[0].numpy())


@pytest.mark.parametrize("kept", [(0, 1, 2, 3), (0, 3), (1, 2), (2,), (0, 1), (3,)])
def test_the_rest_is_the_model_with_the_others_deleted(
    any_target: Traced, kept: tuple[int, ...], tmp_path: Path
) -> None:
    ids = prompt(20)
    step = keep_layers(any_target.graph, kept)
    found = logits_of(step.model, tmp_path, ids)
    wanted = torch_logits(any_target.checkpoint, kept, ids)
    assert np.abs(found - wanted).max() < TOLERANCE
    assert (found.argmax(-1) == wanted.argmax(-1)).all()


def test_every_set_of_layers_says_something_else(target: Traced, tmp_path: Path) -> None:
    """So that the comparison with torch can fail."""
    ids = prompt(20)
    sets = [(0, 1, 2, 3), (0, 3), (1, 2), (2,), (0, 1), (3,)]
    found = [logits_of(keep_layers(target.graph, kept).model, tmp_path, ids) for kept in sets]
    for place, one in enumerate(found):
        for other in found[:place]:
            assert np.abs(one - other).max() > 100 * TOLERANCE


def test_a_step_graph_has_the_k_v_of_its_layers_numbered_anew(target: Traced) -> None:
    before = target.graph.SerializeToString(deterministic=True)
    step = keep_layers(target.graph, (1, 3))
    assert (step.entry, step.ids, step.later) == (None, None, ())
    buffers = [f"{layer}.0.{part}" for layer in (0, 1) for part in ("key", "value")]
    tokens = ["input_ids", "logits_index", "position_ids", "seqlens_k.0", "total_length.0"]
    inputs = [value.name for value in step.model.graph.input]
    assert inputs == [*tokens, *(f"past.{name}" for name in buffers)]
    outputs = [value.name for value in step.model.graph.output]
    assert outputs == ["logits", *(f"present.{name}" for name in buffers)]
    names = {tensor.name for tensor in step.model.graph.initializer}
    assert {"layers.1.qkv", "layers.3.down", "embedding", "lm_head"} <= names
    assert not any(name.startswith(("layers.0.", "layers.2.")) for name in names)
    assert layer_count(step.model) == 2
    assert target.graph.SerializeToString(deterministic=True) == before


def test_no_logits_are_computed_of_tokens_that_nobody_asks_for(
    target: Traced, tmp_path: Path
) -> None:
    ids = prompt(9)
    step = runner(keep_layers(target.graph, (0, 2)).model, tmp_path)
    whole = step.run([RowStep(ids)])["logits"]
    assert whole.shape == (9, VOCABULARY)
    assert (step.run([RowStep(ids)], [8])["logits"] == whole[8:]).all()


@pytest.fixture(scope="module", params=("fp32", "int8", "int4", "w8a8"))
def stored(
    request: pytest.FixtureRequest, target: Traced, tmp_path_factory: pytest.TempPathFactory
) -> tuple[onnx.ModelProto, Path]:
    """The target's graph in a weight type, as a package has it: its weights in a file."""
    directory = tmp_path_factory.mktemp(request.param)
    weights = directory / "target.weights"
    if request.param == "fp32":
        return externalise(target.graph, weights), directory
    if request.param == "w8a8":
        context = CalibrationContext(target.checkpoint.encode, None, 1, (2,))
        texts = [prompt(CONTEXT, seed) for seed in range(8)]
        model = to_w8a8(target.graph, integer_form(), texts, context)
    else:
        model = to_nbits(target.graph, int(request.param[3:]), symmetric=True)
    return externalise(model, weights), directory


def stored_runner(single: onnx.ModelProto, directory: Path, **options: Any) -> GraphRunner:
    path = directory / "graph.onnx"
    save_graph(derive_rows(single, 1), path)
    return GraphRunner(path, capacity=CONTEXT, **options)


def test_a_stored_target_needs_no_file_but_its_own(stored: tuple[onnx.ModelProto, Path]) -> None:
    single, _ = stored
    whole = {tensor.name: tensor for tensor in single.graph.initializer}
    kept = keep_layers(single, (0, 2)).model.graph.initializer
    assert len(kept) < len(whole)
    for tensor in kept:
        assert tensor == whole[tensor.name]
        external = {entry.key: entry.value for entry in tensor.external_data}
        assert external.get("location", "target.weights") == "target.weights"


def test_all_layers_of_a_stored_target_are_the_target_to_the_bit(
    stored: tuple[onnx.ModelProto, Path],
) -> None:
    single, directory = stored
    ids = prompt(20)
    whole = stored_runner(single, directory).run([RowStep(ids)])["logits"]
    step = stored_runner(keep_layers(single, range(LAYERS)).model, directory)
    assert step.run([RowStep(ids)])["logits"].tobytes() == whole.tobytes()


def test_layers_of_a_stored_target_are_those_of_the_checkpoint(
    stored: tuple[onnx.ModelProto, Path], target: Traced
) -> None:
    """Rounded, and for w8a8 rotated: a layer wired to the wrong basis would be noise."""
    single, directory = stored
    ids, kept = prompt(40), (1, 2)
    found = stored_runner(keep_layers(single, kept).model, directory).run([RowStep(ids)])["logits"]
    rounded_to_four_bits = any("Q4" in tensor.name for tensor in single.graph.initializer)
    like = {
        layers: np.corrcoef(found.ravel(), torch_logits(target.checkpoint, layers, ids).ravel())
        for layers in (kept, (0, 1), (2, 3), tuple(range(LAYERS)))
    }
    assert like[kept][0, 1] > (0.88 if rounded_to_four_bits else 0.99)
    assert max(like[other][0, 1] for other in like if other != kept) < 0.8


def test_with_all_layers_every_draft_is_what_the_target_says(
    stored: tuple[onnx.ModelProto, Path],
) -> None:
    """On the target's own K/V, behind tokens that only the target has run."""
    single, directory = stored
    ids, steps = prompt(30, seed=4), 6
    whole = stored_runner(single, directory)
    whole.run([RowStep(ids[:-1])], [])
    drafter = stored_runner(
        keep_layers(single, range(LAYERS)).model, directory, buffers=whole.buffers
    )
    drafts, token = [], ids[-1]
    for step in range(steps):
        token = int(drafter.run([RowStep((token,), 29 + step)])["logits"].argmax())
        drafts.append(token)
    verified = whole.run([RowStep([ids[-1], *drafts], 29)])["logits"].argmax(-1)
    assert verified[:steps].tolist() == drafts


def test_a_drafter_reads_the_targets_k_v(target: Traced, tmp_path: Path) -> None:
    """Of the layer it keeps, not of the one that has its number."""
    kept, ids = (1, 3), prompt(12)
    whole = runner(target.graph, tmp_path / "whole")
    whole.run([RowStep(ids[:-1])], [])
    shared = {
        f"past.{number}.0.{part}": whole.buffers[f"past.{layer}.0.{part}"]
        for number, layer in enumerate(kept)
        for part in ("key", "value")
    }
    model = keep_layers(target.graph, kept).model
    drafter = runner(model, tmp_path / "kept", buffers=shared)
    found = drafter.run([RowStep(ids[-1:], 11)])["logits"]
    assert all(drafter.buffers[name] is buffer for name, buffer in shared.items())
    wrong = {name: whole.buffers[name] for name in shared}
    misread = runner(model, tmp_path / "wrong", buffers=wrong).run([RowStep(ids[-1:], 11)])
    assert np.abs(found - misread["logits"]).max() > 100 * TOLERANCE
    assert np.abs(found - _by_hand(target, kept, ids)).max() < TOLERANCE


def _by_hand(target: Traced, kept: Sequence[int], ids: Sequence[int]) -> np.ndarray:
    """transformers' model of the kept layers on the cache of the whole model."""
    model = target.checkpoint.model
    with torch.no_grad():
        cache = model(torch.tensor([list(ids[:-1])]), use_cache=True).past_key_values
        decoder = model.get_decoder()
        before = decoder.layers
        decoder.layers = torch.nn.ModuleList([before[layer] for layer in kept])
        try:
            # Each layer finds its part of the cache by its own number.
            output = model(torch.tensor([[ids[-1]]]), past_key_values=cache, use_cache=True)
        finally:
            decoder.layers = before
    return np.asarray(output.logits[0].numpy())


def test_sweeping_takes_what_has_unused_outputs_too(target: Traced) -> None:
    """A norm with its sum has outputs that are not named, as inputs of others are not."""
    step = keep_layers(target.graph, (0,))
    nodes = {node.name for node in Graph(step.model).nodes}
    assert not any(name.startswith(("layers.1.", "layers.2.", "layers.3.")) for name in nodes)


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ("auto", LayerChoice()),
        ("24", LayerChoice(count=24)),
        ("1", LayerChoice(count=1)),
        ("30", LayerChoice(count=30)),
        ("0-11", LayerChoice(kept=tuple(range(12)))),
        ("0-2,15-16", LayerChoice(kept=(0, 1, 2, 15, 16))),
        ("29-29,0-1, 5", LayerChoice(kept=(0, 1, 5, 29))),
        ("7-7", LayerChoice(kept=(7,))),
        ("0-29", LayerChoice(kept=tuple(range(30)))),
    ],
)
def test_layers_are_named_by_count_or_by_ranges(text: str, choice: LayerChoice) -> None:
    assert parse_layers(text, 30) == choice


@pytest.mark.parametrize(
    "text", ["", "0", "31", "-1", "5-30", "11-5", "0-3,", "a", "0..3", "1.5", "²", "all"]
)
def test_other_words_for_layers_are_refused(text: str) -> None:
    with pytest.raises(UserError) as refused:
        parse_layers(text, 30)
    assert refused.value.code == "invalid_option"
    assert refused.value.param == "--self-speculative"
    assert refused.value.message.startswith(f"--self-speculative {text}: ")
