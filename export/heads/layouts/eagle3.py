"""What the layouts of EAGLE-3 heads share: they differ in their config, and in a few names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from export.heads.eagle3 import Eagle3, Eagle3Shape
from export.heads.facts import TargetFacts
from export.heads.layouts.blocks import check_sizes, read_block, read_rope, read_rotary
from export.heads.layouts.checks import (
    check_draft_ids,
    check_hidden,
    check_vocabulary,
    fill,
    number,
)
from export.heads.layouts.files import HeadFiles

LAYERS = "eagle_aux_hidden_state_layer_ids"
_MIDLAYER, _FIRST = "midlayer.", "layers.0."
_SPARE = ("rotary_emb.", "verifier_norm.", "verifier_lm_head.")


@dataclass(frozen=True, slots=True)
class Variant:
    """What only a layout's config says. `config` has the sizes of the layers."""

    config: Mapping[str, Any]
    tap_layers: tuple[int, ...]
    target_hidden: int | None
    layers: int = 1
    input_norm: bool = False
    norm_before_residual: bool = False


def build_eagle3(files: HeadFiles, facts: TargetFacts, variant: Variant) -> Eagle3:
    config, names = variant.config, set(files.homes)
    with_midlayer = any(name.startswith(_MIDLAYER) for name in names)
    prefix = _MIDLAYER if with_midlayer else _FIRST
    block = read_block(files, config, names, prefix)
    check_hidden(files, variant.target_hidden or block.hidden, facts)
    vocab_size = number(files, config, "vocab_size")
    check_vocabulary(files, vocab_size, facts)
    own_embeddings = "embed_tokens.weight" in names
    if block.hidden != facts.hidden and not own_embeddings:
        raise files.refused(
            f"is {block.hidden} wide and has no embeddings; those of {facts.name}"
            f" are {facts.hidden} wide"
        )
    check_sizes(files, block, prefix)
    shape = Eagle3Shape(
        block=block,
        vocab_size=vocab_size,
        taps=len(variant.tap_layers) * facts.hidden,
        layers=variant.layers,
        own_embeddings=own_embeddings,
        own_head="lm_head.weight" in names,
        fc_bias="fc.bias" in names,
        input_norm=variant.input_norm,
        norm_before_residual=variant.norm_before_residual,
    )
    rotary = read_rotary(files, read_rope(files, config), block.head_dim, facts)
    module = Eagle3(shape, rotary, _draft_ids(files, facts), facts.embeddings, facts.lm_head)
    if "t2d" not in names:
        module.t2d = None  # nothing reads it
    spare = _SPARE if module.d2t is not None else (*_SPARE, "t2d")
    fill(module, files, (lambda name: name) if with_midlayer else _numbered, names, spare)
    return module


def _numbered(name: str) -> str:
    """The fusing layer as `layers.0`, those behind it as `layers.1` and up."""
    if name.startswith(_MIDLAYER):
        return _FIRST + name.removeprefix(_MIDLAYER)
    if name.startswith("more_layers."):
        _, index, rest = name.split(".", 2)
        return f"layers.{int(index) + 1}.{rest}"
    return name


def _draft_ids(files: HeadFiles, facts: TargetFacts) -> Tensor | None:
    if "d2t" not in files.homes:
        return None
    offsets = files.read(["d2t"])["d2t"]
    if offsets.dim() != 1 or offsets.dtype not in (torch.int32, torch.int64):
        found = f"{offsets.dtype} of shape {list(offsets.shape)}"
        raise files.refused(f"has d2t as {found}, which should be a list of whole numbers")
    ids = offsets.long() + torch.arange(len(offsets))
    check_draft_ids(files, ids, facts)
    return ids


def read_layers(files: HeadFiles, layers: Any, facts: TargetFacts, shift: int) -> tuple[int, ...]:
    """Layers of a config as those that the taps enter: 0 to n, which is behind the last one."""
    if not isinstance(layers, list) or not layers or not all(type(i) is int for i in layers):
        raise files.refused(f"has no usable {LAYERS} in its config.json ({layers!r})")
    entered = tuple(layer + shift for layer in layers)
    if not all(0 <= layer <= facts.layers for layer in entered):
        raise files.refused(f"reads layers {layers}; {facts.name} has {facts.layers}")
    return entered
