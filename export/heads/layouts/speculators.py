"""EAGLE heads as the `speculators` project publishes them.

EAGLE-3 (`speculators_model_type` "eagle3"): `layers.0.*` is the fusing layer and further ones are
plain; `fc`, `norm`, `lm_head`, `embed_tokens`, `d2t`, `t2d`; `input_norm` with `norm_before_fc`.
`eagle_aux_hidden_state_layer_ids` are the layers that the taps enter. EAGLE-1 ("eagle"):
`fusion_fc`, `transformer.*`, and with `layernorms` also `embedding_layernorm` and
`pre_lm_head_layernorm`. The sizes of the layers are in `transformer_layer_config`. Copies of the
target's own norm and LM head (`verifier_*`), which training keeps, are left aside.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from export.heads.eagle import Eagle, EagleShape
from export.heads.eagle3 import Eagle3
from export.heads.facts import HeadInfo, TargetFacts
from export.heads.layouts.blocks import check_sizes, read_block, read_rope, read_rotary
from export.heads.layouts.checks import check_hidden, check_vocabulary, count, fill, number
from export.heads.layouts.eagle3 import LAYERS, Variant, build_eagle3, read_layers
from export.heads.layouts.files import HeadFiles

TYPE = "speculators_model_type"
_SPARE = ("rotary_emb.",)
_EAGLE_NAMES = {"fc.": "fusion_fc.", "layers.0.": "transformer."}


def read_eagle3(files: HeadFiles, facts: TargetFacts) -> tuple[Eagle3, HeadInfo]:
    config, taps = _layer_config(files), facts.tap_layers
    if files.config.get(LAYERS) is not None:
        taps = read_layers(files, files.config[LAYERS], facts, 0)
    variant = Variant(
        config=config,
        tap_layers=taps,
        target_hidden=files.config.get("target_hidden_size"),
        layers=count(files, config, "num_hidden_layers", 1),
        input_norm=bool(files.config.get("norm_before_fc", False)),
        norm_before_residual=bool(files.config.get("norm_before_residual", False)),
    )
    module = build_eagle3(files, facts, variant)
    return module, HeadInfo(
        "eagle3", "speculators", "taps", tap_layers=taps, rope=read_rope(files, config)
    )


def read_eagle(files: HeadFiles, facts: TargetFacts) -> tuple[Eagle, HeadInfo]:
    config, names = _layer_config(files), set(files.homes)
    block = read_block(files, config, names, "transformer.")
    check_hidden(files, block.hidden, facts)
    vocab_size = number(files, config, "vocab_size")
    check_vocabulary(files, vocab_size, facts)
    check_sizes(files, block, "transformer.")
    shape = EagleShape(
        block=block,
        vocab_size=vocab_size,
        fc_bias=bool(files.config.get("fusion_bias", False)),
        own_embeddings="embed_tokens.weight" in names,
        own_head="lm_head.weight" in names,
        norms=bool(files.config.get("layernorms", False)),
    )
    rope = read_rope(files, config)
    rotary = read_rotary(files, rope, block.head_dim, facts)
    module = Eagle(shape, rotary, facts.embeddings, facts.lm_head)
    fill(module, files, _eagle_name, names, _SPARE)
    return module, HeadInfo("eagle", "speculators", "hidden", rope=rope)


def _eagle_name(name: str) -> str:
    for ours, theirs in _EAGLE_NAMES.items():
        if name.startswith(ours):
            return theirs + name.removeprefix(ours)
    return name


def _layer_config(files: HeadFiles) -> Mapping[str, Any]:
    config = files.config.get("transformer_layer_config")
    if not isinstance(config, Mapping):
        raise files.refused("has no transformer_layer_config in its config.json")
    return config
