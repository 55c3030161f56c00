"""A head's layers, as its config and the names of its tensors describe them."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

from export.heads.attention import Rotary
from export.heads.block import BlockShape
from export.heads.facts import TargetFacts
from export.heads.layouts.checks import check_block, check_rows, measure, number
from export.heads.layouts.files import HeadFiles
from export.heads.rotary import ROPE_KEYS, make_rotary

_LLAMA_EPSILON = 1e-6
_ROTARY_MULTIPLE = 16
_SCALING, _FACTOR = "rope_scaling", "partial_rotary_factor"


def read_block(
    files: HeadFiles, config: Mapping[str, Any], names: Collection[str], prefix: str
) -> BlockShape:
    """Sizes out of `config`; which optional parameters there are, out of `names` below `prefix`."""
    check_block(files, names)
    activation = config.get("hidden_act", "silu")
    if activation not in ("silu", "swish"):
        raise files.refused(f"has the activation {activation!r}; only SiLU is supported")
    hidden = number(files, config, "hidden_size")
    heads = number(files, config, "num_attention_heads")
    kv_heads = number(files, config, "num_key_value_heads", heads)
    if heads % kv_heads:
        raise files.refused(f"has {heads} heads of attention for {kv_heads} of keys")
    return BlockShape(
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=number(files, config, "head_dim", hidden // heads),
        intermediate=number(files, config, "intermediate_size"),
        epsilon=measure(files, config, "rms_norm_eps", _LLAMA_EPSILON),
        qkv_bias=f"{prefix}self_attn.q_proj.bias" in names,
        o_bias=f"{prefix}self_attn.o_proj.bias" in names,
        mlp_bias=f"{prefix}mlp.down_proj.bias" in names,
        qk_norm=f"{prefix}self_attn.q_norm.weight" in names,
    )


def check_sizes(files: HeadFiles, block: BlockShape, prefix: str) -> None:
    """Refuse sizes that the layer below `prefix` does not have, before memory is taken for them."""
    rows = {
        "self_attn.q_proj": block.heads * block.head_dim,
        "self_attn.o_proj": block.hidden,
        "mlp.gate_proj": block.intermediate,
    }
    check_rows(files, {f"{prefix}{part}.weight": count for part, count in rows.items()})


def read_rope(files: HeadFiles, config: Mapping[str, Any]) -> dict[str, Any]:
    """What there is of `ROPE_KEYS`."""
    rope = {key: config[key] for key in ROPE_KEYS if config.get(key) is not None}
    for key in rope.keys() - {_SCALING}:
        measure(files, rope, key, 1.0, 1.0 if key == _FACTOR else math.inf)
    if not isinstance(rope.get(_SCALING, {}), Mapping):
        raise files.refused(f"has a {_SCALING} in its config.json that is no JSON object")
    return rope


def read_rotary(
    files: HeadFiles, rope: Mapping[str, Any], head_dim: int, facts: TargetFacts
) -> Rotary:
    try:
        rotary = make_rotary(rope, head_dim, facts.context)
    except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise files.refused(f"has a rotary embedding that is not understood ({error})") from None
    if not bool(rotary.cos.isfinite().all()):
        raise files.refused("has a rotary embedding whose values are no numbers")
    width = 2 * rotary.cos.shape[-1]
    if width % _ROTARY_MULTIPLE:
        raise files.refused(
            f"rotates {width} dimensions of each head;"
            f" only multiples of {_ROTARY_MULTIPLE} are supported"
        )
    return rotary


def block_config(block: BlockShape, rope: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of a config.json that `read_block` and `read_rope` read."""
    return {
        "hidden_size": block.hidden,
        "num_attention_heads": block.heads,
        "num_key_value_heads": block.kv_heads,
        "head_dim": block.head_dim,
        "intermediate_size": block.intermediate,
        "rms_norm_eps": block.epsilon,
        "hidden_act": "silu",
        "attention_bias": block.qkv_bias,
        "mlp_bias": block.mlp_bias,
        **rope,
    }
