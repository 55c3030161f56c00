"""What drafters are before training: parts of their target, fitted to one another."""

from __future__ import annotations

from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from export.training.beginnings import Stream, begin_draft
from tests.head_checkpoints import make_facts


def _target() -> Any:
    block = make_facts().block
    config = LlamaConfig(
        hidden_size=block.hidden,
        intermediate_size=block.intermediate,
        num_hidden_layers=4,
        num_attention_heads=block.heads,
        num_key_value_heads=block.kv_heads,
        head_dim=block.head_dim,
        vocab_size=64,
    )
    return LlamaForCausalLM(config)


def test_a_streams_size_grows_evenly_between_what_is_known() -> None:
    stream = Stream({4: 1.6, 0: 0.1})
    assert [round(stream(layer), 6) for layer in range(6)] == [0.1, 0.2, 0.4, 0.8, 1.6, 1.6]


def test_a_draft_models_layers_do_not_drown_the_smaller_stream_they_get() -> None:
    """What a layer adds is as large beside the stream as it was in the target."""
    target = _target()
    # The last layer gets 0.2, where it had 0.8.
    drafter = begin_draft(make_facts(), target, (0, 3), Stream({0: 0.1, 4: 1.6}))
    layers: Any = drafter.model["layers"]
    for own, index, unit in ((layers[0], 0, 1.0), (layers[1], 3, 4.0)):
        theirs = target.model.layers[index]
        changed = {"self_attn.o_proj.weight", "mlp.down_proj.weight"}
        for name, parameter in own.named_parameters():
            factor = unit if name in changed else 1.0
            torch.testing.assert_close(parameter * factor, theirs.get_parameter(name))
