"""EAGLE heads as SafeAILab publishes them (and SpecForge, for EAGLE-3).

EAGLE-3: `fc`, `midlayer.*` (some call it `layers.0`), `norm`, `lm_head`, `d2t`, `t2d`;
`embed_tokens` maybe. The taps enter layers 2, n/2 and n - 3, unless `eagle_config` names layers:
their outputs are meant, which enter the layers behind them. EAGLE-1 and 2: `fc`, `layers.{i}.*`;
`embed_tokens` maybe. What leaves out embeddings or LM head uses the target's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from export.heads.eagle import Eagle, EagleShape
from export.heads.eagle3 import Eagle3
from export.heads.facts import HeadInfo, TargetFacts
from export.heads.layouts.blocks import (
    block_config,
    check_sizes,
    read_block,
    read_rope,
    read_rotary,
)
from export.heads.layouts.checks import check_hidden, check_vocabulary, count, fill, number
from export.heads.layouts.eagle3 import LAYERS, Variant, build_eagle3, read_layers
from export.heads.layouts.files import HeadFiles

_SPARE = ("rotary_emb.",)
_OUTPUT_OF = 1


def is_eagle3(files: HeadFiles) -> bool:
    marks = ("midlayer.", "layers.0.hidden_norm.", "d2t")
    return any(name.startswith(marks) for name in files.homes)


def is_eagle(files: HeadFiles) -> bool:
    return any(name.startswith("layers.0.") for name in files.homes)


def read_eagle3(files: HeadFiles, facts: TargetFacts) -> tuple[Eagle3, HeadInfo]:
    config = files.config
    taps, named = facts.tap_layers, config.get("eagle_config")
    if isinstance(named, Mapping) and LAYERS in named:
        taps = read_layers(files, named[LAYERS], facts, _OUTPUT_OF)
    vocab_size = number(files, config, "vocab_size")
    if (
        "d2t" not in files.homes
        and number(files, config, "draft_vocab_size", vocab_size) != vocab_size
    ):
        raise files.refused("lacks d2t, which maps its draft vocabulary to the target's")
    variant = Variant(
        config=config,
        tap_layers=taps,
        target_hidden=config.get("target_hidden_size"),
        norm_before_residual=bool(config.get("norm_before_residual", False)),
    )
    module, rope = build_eagle3(files, facts, variant), read_rope(files, config)
    return module, HeadInfo("eagle3", "safeailab", "taps", tap_layers=taps, rope=rope)


def eagle3_config(module: Eagle3, info: HeadInfo) -> dict[str, Any]:
    shape = module.shape
    return {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "num_hidden_layers": 1,
        "vocab_size": shape.vocab_size,
        "draft_vocab_size": shape.vocab_size if module.d2t is None else len(module.d2t),
        "norm_before_residual": shape.norm_before_residual,
        "target_hidden_size": shape.taps // len(info.tap_layers),
        "eagle_config": {
            "use_aux_hidden_state": True,
            LAYERS: [layer - _OUTPUT_OF for layer in info.tap_layers],
        },
        **block_config(shape.block, info.rope),
    }


def read_eagle(files: HeadFiles, facts: TargetFacts) -> tuple[Eagle, HeadInfo]:
    config, names = files.config, set(files.homes)
    block = read_block(files, config, names, "layers.0.")
    check_hidden(files, block.hidden, facts)
    vocab_size = number(files, config, "vocab_size")
    check_vocabulary(files, vocab_size, facts)
    check_sizes(files, block, "layers.0.")
    shape = EagleShape(
        block=block,
        vocab_size=vocab_size,
        layers=count(files, config, "num_hidden_layers", 1),
        fc_bias=bool(config.get("bias", "fc.bias" in names)),
        own_embeddings="embed_tokens.weight" in names,
        own_head="lm_head.weight" in names,
    )
    rope = read_rope(files, config)
    rotary = read_rotary(files, rope, block.head_dim, facts)
    module = Eagle(shape, rotary, facts.embeddings, facts.lm_head)
    fill(module, files, lambda name: name, names, _SPARE)
    return module, HeadInfo("eagle", "safeailab", "hidden", rope=rope)


def eagle_config(module: Eagle, info: HeadInfo) -> dict[str, Any]:
    shape = module.shape
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "num_hidden_layers": shape.layers,
        "vocab_size": shape.vocab_size,
        "bias": shape.fc_bias,
        **block_config(shape.block, info.rope),
    }
