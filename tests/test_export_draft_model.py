"""Draft models: other checkpoints of the target's vocabulary, and what they are refused for."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from export.checkpoint import Checkpoint, inspect_source, load_checkpoint
from export.draft_model import DraftModel, draft_greedily, load_draft, trace_step
from export.heads.facts import TargetFacts, target_facts
from export.heads.step import StepGraph
from export.rows import derive_rows
from export.runner import GraphRunner, RowStep
from export.sources import locate
from export.tokenizers import NamedTokenizer
from export.writer import externalise, save_graph
from models.errors import UserError
from tests.checkpoints import VOCABULARY, make_checkpoint
from tests.letters_checkpoint import make_letters_checkpoint

CONTEXT = 128
STEPS = 6
Change = Callable[[dict[str, Any], dict[str, torch.Tensor]], None]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    directory = tmp_path_factory.mktemp("target") / "big-llama"
    source = locate(str(make_checkpoint(directory, "llama", num_hidden_layers=3)))
    return load_checkpoint(source, inspect_source(source))


@pytest.fixture(scope="module")
def facts(target: Checkpoint) -> TargetFacts:
    return target_facts(target, CONTEXT)


@pytest.fixture(scope="module")
def tokenizer(target: Checkpoint) -> NamedTokenizer:
    return NamedTokenizer(target.source.name, target.tokenizer.backend_tokenizer)


Load = Callable[[Path], DraftModel]


@pytest.fixture(scope="module")
def load(facts: TargetFacts, tokenizer: NamedTokenizer) -> Load:
    return lambda path: load_draft(locate(str(path)), facts, tokenizer)


@pytest.fixture(scope="module")
def drafts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("drafts")


def small(directory: Path, architecture: str = "qwen2", **overrides: Any) -> Path:
    sizes = {"hidden_size": 32, "num_attention_heads": 2, "num_key_value_heads": 1}
    return make_checkpoint(directory, architecture, seed=3, **{**sizes, **overrides})


def borrowing(directory: Path, facts: TargetFacts, change: Change | None = None) -> Path:
    """What training writes: layers and a norm, no embeddings, no head, no tokenizer."""
    whole = make_checkpoint(directory / "whole", "llama", seed=5, num_hidden_layers=1)
    tensors = load_file(whole / "model.safetensors")
    own = {
        k: v.half() for k, v in tensors.items() if "embed_tokens" not in k and "lm_head" not in k
    }
    config = json.loads((whole / "config.json").read_text())
    config |= {"outpace_embeddings": "target", "tie_word_embeddings": True}
    config["target"] = {"checkpoint": facts.name, "sha256": facts.sha256}
    path = directory / "trained"
    path.mkdir()
    if change is not None:
        change(config, own)
    save_file(own, path / "model.safetensors", metadata={"format": "pt"})
    (path / "config.json").write_text(json.dumps(config))
    shutil.rmtree(whole)
    return path


def runner(step: StepGraph, directory: Path) -> GraphRunner:
    directory.mkdir(exist_ok=True)
    path = directory / "step.onnx"
    save_graph(derive_rows(externalise(step.model, directory / "weights"), 1), path)
    return GraphRunner(path, capacity=CONTEXT)


def drafted(graph: GraphRunner, ids: list[int], steps: int) -> list[int]:
    logits = graph.run([RowStep(ids)], [len(ids) - 1])["logits"]
    tokens = [int(logits.argmax())]
    while len(tokens) < steps:
        past = len(ids) + len(tokens) - 1
        tokens.append(int(graph.run([RowStep(tokens[-1:], past)])["logits"].argmax()))
    return tokens


def prompts() -> list[list[int]]:
    rng = np.random.default_rng(0)
    return [[int(t) for t in rng.integers(3, VOCABULARY, rng.integers(2, 40))] for _ in range(20)]


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "gemma3"])
def test_the_step_graph_drafts_what_torch_says_next(
    architecture: str, load: Load, tmp_path: Path
) -> None:
    draft = load(small(tmp_path / "draft", architecture))
    assert draft.checkpoint.source.directory == (tmp_path / "draft").resolve()
    graph = runner(trace_step(draft, tmp_path), tmp_path / "graph")
    said = set()
    for ids in prompts():
        tokens, logits = draft_greedily(draft.checkpoint.model, ids, STEPS)
        assert logits.shape == (STEPS, VOCABULARY)
        assert logits.argmax(-1).tolist() == tokens
        assert drafted(graph, ids, STEPS) == tokens
        said.add(tuple(tokens))
    assert len(said) > 10


def test_the_reference_is_a_greedy_continuation(load: Load, drafts: Path) -> None:
    """With its cache it says what it says of the whole text."""
    model = load(small(drafts / "reference")).checkpoint.model
    ids = prompts()[0]
    tokens, logits = draft_greedily(model, ids, STEPS)
    with torch.no_grad():
        whole = model(torch.tensor([ids + tokens])).logits[0, len(ids) - 1 : -1].numpy()
    assert np.abs(whole - logits).max() < 1e-4


def test_a_step_has_tokens_lengths_and_k_v_in_and_logits_out(load: Load, tmp_path: Path) -> None:
    step = trace_step(load(small(tmp_path / "draft")), tmp_path)
    assert (step.entry, step.ids, step.later) == (None, None, ())
    buffers = [f"{layer}.0.{part}" for layer in range(2) for part in ("key", "value")]
    tokens = ["input_ids", "logits_index", "position_ids", "seqlens_k.0", "total_length.0"]
    assert [i.name for i in step.model.graph.input] == [*tokens, *(f"past.{b}" for b in buffers)]
    assert [o.name for o in step.model.graph.output] == [
        "logits",
        *(f"present.{b}" for b in buffers),
    ]
    shape = step.model.graph.output[0].type.tensor_type.shape.dim
    assert shape[1].dim_value == VOCABULARY
    graph = runner(step, tmp_path / "graph")
    ids = prompts()[0]
    whole = graph.run([RowStep(ids)])["logits"]
    assert (graph.run([RowStep(ids)], [1])["logits"] == whole[1:2]).all()
    assert graph.run([RowStep(ids)], [])["logits"].shape == (0, VOCABULARY)


def test_a_padded_vocabulary_is_cut_to_the_tokens_there_are(load: Load, drafts: Path) -> None:
    draft = load(small(drafts / "padded", vocab_size=320))
    assert draft.checkpoint.vocab_size == VOCABULARY
    assert draft.ids is None
    assert draft.checkpoint.model.get_output_embeddings().weight.shape[0] == VOCABULARY
    assert draft.checkpoint.model.get_input_embeddings().weight.shape[0] == 320


def test_fewer_embeddings_than_tokens_are_refused(load: Load, drafts: Path) -> None:
    with pytest.raises(UserError) as refused:
        load(small(drafts / "short", vocab_size=290))
    assert refused.value.code == "draft_invalid"
    assert refused.value.message == ("short embeds 290 ids, big-llama has 300 it may be given.")


@pytest.mark.parametrize(
    ("own", "positions", "ends"), [(64, 64, 64), (128, 128, None), (256, 128, None)]
)
def test_a_shorter_context_is_told(
    own: int, positions: int, ends: int | None, load: Load, drafts: Path
) -> None:
    """vllm#57941: drafting stops there, decoding goes on; so the package must know where."""
    draft = load(small(drafts / f"context{own}", max_position_embeddings=own))
    assert draft.positions == positions
    assert draft.context_length == ends


def test_another_vocabulary_is_refused_naming_both(load: Load, drafts: Path) -> None:
    """sglang#24051."""
    with pytest.raises(UserError) as refused:
        load(make_letters_checkpoint(drafts / "letters"))
    assert refused.value.code == "tokenizer_mismatch"
    assert refused.value.param == "--draft"
    assert "letters cannot draft for big-llama: token 3 is '!' in big-llama and ' ' in letters" in (
        refused.value.message
    )


def test_a_vocabulary_of_the_same_size_is_not_enough(load: Load, drafts: Path) -> None:
    path = small(drafts / "swapped")
    definition = json.loads((path / "tokenizer.json").read_text())
    ids = definition["model"]["vocab"]
    ids["the"], ids["in"] = ids["in"], ids["the"]
    (path / "tokenizer.json").write_text(json.dumps(definition))
    with pytest.raises(UserError) as refused:
        load(path)
    assert refused.value.code == "tokenizer_mismatch"
    assert refused.value.message == (
        f"swapped cannot draft for big-llama: token {ids['in']} is 'the' in big-llama"
        " and 'in' in swapped (2 ids differ)."
    )


def test_what_any_checkpoint_is_refused_for_is_said_of_the_draft(
    load: Load, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "mamba"}')
    with pytest.raises(UserError) as refused:
        load(tmp_path)
    assert refused.value.code == "unsupported_architecture"
    assert refused.value.param == "--draft"


def test_missing_tensors_are_named(load: Load, drafts: Path) -> None:
    path = small(drafts / "holes")
    tensors = load_file(path / "model.safetensors")
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError) as refused:
        load(path)
    assert refused.value.code == "source_unreadable"
    assert refused.value.param == "--draft"
    assert "holes in" in refused.value.message
    assert refused.value.message.endswith("lacks model.layers.1.mlp.up_proj.weight.")


def test_embeddings_and_head_may_be_the_targets(
    target: Checkpoint, facts: TargetFacts, load: Load, tmp_path: Path
) -> None:
    """The target's head is not tied to its embeddings: both must be its own."""
    path = borrowing(tmp_path, facts)
    before = sorted(p.name for p in path.iterdir())
    draft = load(path)
    model, lender = draft.checkpoint.model, target.model
    assert (model.get_input_embeddings().weight == lender.get_input_embeddings().weight).all()
    assert (model.get_output_embeddings().weight == lender.get_output_embeddings().weight).all()
    assert not torch.equal(
        model.get_input_embeddings().weight, model.get_output_embeddings().weight
    )
    own = load_file(path / "model.safetensors")
    for name, parameter in model.named_parameters():
        if name in own:
            assert (parameter == own[name].float()).all(), name
    assert len(own) == len(dict(model.named_parameters())) - 2
    assert draft.checkpoint.source.directory == path.resolve()
    assert sorted(p.name for p in path.iterdir()) == before
    graph = runner(trace_step(draft, tmp_path), tmp_path / "graph")
    for ids in prompts():
        assert drafted(graph, ids, STEPS) == draft_greedily(model, ids, STEPS)[0]


def test_a_named_target_is_word_enough(facts: TargetFacts, load: Load, tmp_path: Path) -> None:
    def unmarked(config: dict[str, Any], _: dict[str, torch.Tensor]) -> None:
        del config["outpace_embeddings"]

    assert load(borrowing(tmp_path, facts, unmarked)).checkpoint.vocab_size == VOCABULARY


def test_neither_is_a_target_that_is_not_named(
    facts: TargetFacts, load: Load, tmp_path: Path
) -> None:
    def unnamed(config: dict[str, Any], _: dict[str, torch.Tensor]) -> None:
        del config["target"]

    assert load(borrowing(tmp_path, facts, unnamed)).checkpoint.vocab_size == VOCABULARY


def test_a_draft_of_another_target_is_refused(
    facts: TargetFacts, load: Load, tmp_path: Path
) -> None:
    def other(config: dict[str, Any], _: dict[str, torch.Tensor]) -> None:
        config["target"] = {"checkpoint": "Other-1B", "sha256": "ab" * 32}

    with pytest.raises(UserError) as refused:
        load(borrowing(tmp_path, facts, other))
    assert refused.value.code == "draft_invalid"
    assert refused.value.message == (
        "trained borrows the embeddings of Other-1B (sha256 abababababab),"
        f" not those of big-llama (sha256 {facts.sha256[:12]})."
    )


@pytest.mark.parametrize(
    ("declared", "problem"),
    [
        ({"hidden_size": 48}, "is 48 wide; big-llama is 64."),
        (
            {"vocab_size": 32000},
            f"has a vocabulary of 32000; big-llama has {VOCABULARY}.",
        ),
    ],
)
def test_borrowed_embeddings_must_fit(
    declared: dict[str, int], problem: str, facts: TargetFacts, load: Load, tmp_path: Path
) -> None:
    def other(config: dict[str, Any], _: dict[str, torch.Tensor]) -> None:
        config.update(declared)

    with pytest.raises(UserError) as refused:
        load(borrowing(tmp_path, facts, other))
    assert refused.value.message == f"trained borrows its target's embeddings and {problem}"


def test_what_is_missing_beside_the_embeddings_is_named(
    facts: TargetFacts, load: Load, tmp_path: Path
) -> None:
    def holes(_: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        del tensors["model.norm.weight"]

    with pytest.raises(UserError) as refused:
        load(borrowing(tmp_path, facts, holes))
    assert refused.value.message.endswith("lacks model.norm.weight.")
    assert refused.value.param == "--draft"
    assert str(tmp_path / "trained") in refused.value.message


@pytest.mark.parametrize("left", [0, 100, 2000])
def test_a_file_that_was_cut_off_is_called_corrupt(
    left: int, facts: TargetFacts, load: Load, tmp_path: Path
) -> None:
    path = borrowing(tmp_path, facts) / "model.safetensors"
    path.write_bytes(path.read_bytes()[:left])
    with pytest.raises(UserError) as refused:
        load(path.parent)
    assert refused.value.code == "draft_invalid"
    assert refused.value.message.startswith("trained has a corrupt file model.safetensors (")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_named(
    value: float, facts: TargetFacts, load: Load, tmp_path: Path
) -> None:
    name = "model.layers.0.self_attn.k_proj.weight"

    def spoil(_: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        tensors[name][0, 0] = value

    with pytest.raises(UserError) as refused:
        load(borrowing(tmp_path, facts, spoil))
    assert refused.value.message.endswith(f"has values in {name} that are no numbers.")
    assert str(tmp_path / "trained") in refused.value.message


def test_a_draft_that_borrows_from_nobody_lacks_a_tokenizer(
    facts: TargetFacts, load: Load, tmp_path: Path
) -> None:
    def alone(config: dict[str, Any], _: dict[str, torch.Tensor]) -> None:
        del config["target"], config["outpace_embeddings"]

    with pytest.raises(UserError) as refused:
        load(borrowing(tmp_path, facts, alone))
    assert refused.value.message.endswith("has no tokenizer (tokenizer.json).")


@pytest.mark.parametrize(
    ("option", "declared"),
    [
        ("--eagle", {"architectures": ["LlamaForCausalLMEagle3"]}),
        ("--mtp", {"architectures": ["MiMoMTPModel"]}),
        ("--medusa", {"architectures": None, "medusa_num_heads": 4}),
    ],
)
def test_a_head_is_no_draft_model(
    option: str, declared: dict[str, Any], load: Load, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", **declared}))
    with pytest.raises(UserError, match=f"is a head, not a draft model: give it as {option}"):
        load(tmp_path)
