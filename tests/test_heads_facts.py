"""What heads are told of a real checkpoint, and how their positions rotate."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from export.checkpoint import inspect_source, load_checkpoint
from export.decoder import Trace
from export.heads.facts import target_facts
from export.sources import locate, weights_sha256
from models.memory import PAD_TOKENS
from tests.checkpoints import VOCABULARY, make_checkpoint

CONTEXT = 64


@pytest.mark.parametrize("architecture", ["llama", "llama3-scaling", "qwen3", "phi3"])
def test_facts_of_a_checkpoint(architecture: str, tmp_path: Path) -> None:
    source = locate(str(make_checkpoint(tmp_path / "tiny", architecture)))
    checkpoint = load_checkpoint(source, inspect_source(source))
    facts, model = target_facts(checkpoint, CONTEXT), checkpoint.model
    assert (facts.name, facts.sha256) == ("tiny", weights_sha256(source))
    assert (facts.hidden, facts.layers, facts.vocab_size) == (64, 2, VOCABULARY)
    assert torch.equal(facts.embeddings, model.get_input_embeddings().weight)
    assert torch.equal(facts.lm_head, model.get_output_embeddings().weight)
    assert (
        facts.block.heads * facts.block.head_dim
        == model.model.layers[0].self_attn.o_proj.in_features
    )
    assert facts.tap_layers == (2, 1, 0)
    assert facts.owns(tmp_path / "tiny")
    assert not facts.owns(tmp_path)


@pytest.mark.parametrize("architecture", ["llama", "llama3-scaling", "qwen3", "phi3"])
def test_positions_rotate_as_the_targets_do(architecture: str, tmp_path: Path) -> None:
    source = locate(str(make_checkpoint(tmp_path, architecture)))
    checkpoint = load_checkpoint(source, inspect_source(source))
    trace = Trace(checkpoint.model, lambda: None, CONTEXT)
    cos, sin = trace.rotary_tables(checkpoint.model.model.rotary_emb)
    rotary = target_facts(checkpoint, CONTEXT).rotary()
    assert rotary.cos.shape == (CONTEXT + PAD_TOKENS, cos.shape[1])
    assert torch.equal(rotary.cos, cos)
    assert torch.equal(rotary.sin, sin)
