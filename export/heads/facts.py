"""What a head needs to know of its target, and what is known of a head."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tokenizers import Tokenizer
from torch import Tensor

from export.checkpoint import Checkpoint
from export.decoder import head_dim
from export.features import default_tap_layers
from export.heads.attention import Rotary
from export.heads.block import BlockShape
from export.heads.rotary import ROPE_KEYS, make_rotary
from export.sources import weights_sha256

Kind = Literal["eagle", "eagle3", "medusa", "mtp"]


@dataclass(frozen=True, slots=True)
class TargetFacts:
    """The target of a head.

    `vocab_size` counts its logits; the checkpoint may embed more ids (`embeddings`), which pad it.
    `embeddings` [rows, hidden] and `lm_head` [vocab_size, hidden] are its own tensors, not copies.
    `block` and `rope` are its layers' shape and the part of its config that says how they rotate.
    `directory` holds the checkpoint. `context` is the number of positions to rotate.
    """

    name: str
    sha256: str
    hidden: int
    layers: int
    vocab_size: int
    context: int
    block: BlockShape
    rope: Mapping[str, Any]
    embeddings: Tensor
    lm_head: Tensor
    tokenizer: Tokenizer
    directory: Path

    def rotary(self) -> Rotary:
        return make_rotary(self.rope, self.block.head_dim, self.context)

    def owns(self, directory: Path) -> bool:
        """Whether a head lies in the target's own checkpoint."""
        return directory.resolve() == self.directory.resolve()

    @property
    def tap_layers(self) -> tuple[int, ...]:
        """What EAGLE-3 heads read where they do not say."""
        return default_tap_layers(self.layers)


@dataclass(frozen=True, slots=True)
class HeadInfo:
    """A head as it was published or trained.

    `layout` names its published form. `reads` is the feature of the first step; `tap_layers` are
    the layers that `taps` are taken from (the stream entering each). An entry of its K/V is final
    once `lookahead` tokens behind it are known (0: no K/V). `rope` is as in `TargetFacts`.
    """

    kind: Kind
    layout: str
    reads: Literal["hidden", "taps"]
    name: str = ""
    revision: str = ""
    sha256: str = ""
    tap_layers: tuple[int, ...] = ()
    lookahead: int = 1
    draft_vocab: int = 0
    rope: Mapping[str, Any] = field(default_factory=dict)


def target_facts(checkpoint: Checkpoint, context: int) -> TargetFacts:
    """`checkpoint` must still have its model."""
    config, model = checkpoint.config, checkpoint.model
    heads = int(config.num_attention_heads)
    return TargetFacts(
        name=checkpoint.source.name,
        sha256=weights_sha256(checkpoint.source),
        hidden=int(config.hidden_size),
        layers=int(config.num_hidden_layers),
        vocab_size=checkpoint.vocab_size,
        context=context,
        block=BlockShape(
            hidden=int(config.hidden_size),
            heads=heads,
            kv_heads=int(getattr(config, "num_key_value_heads", None) or heads),
            head_dim=head_dim(config),
            intermediate=int(config.intermediate_size),
            epsilon=float(config.rms_norm_eps),
        ),
        rope={key: getattr(config, key) for key in ROPE_KEYS if hasattr(config, key)},
        embeddings=model.get_input_embeddings().weight.detach(),
        lm_head=model.get_output_embeddings().weight.detach(),
        tokenizer=checkpoint.tokenizer.backend_tokenizer,
        directory=checkpoint.source.directory,
    )
