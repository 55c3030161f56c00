"""MTP modules in the names of DeepSeek-V3 and GLM-4.x, or of MiMo.

They are looked for among all tensors of a checkpoint, the target's own or one of their own. In the
target's own, `embed_tokens` and `shared_head.head` of a module may be copies of the target's.
"""

from __future__ import annotations

import re
from typing import Any

from export.heads.facts import HeadInfo, TargetFacts
from export.heads.layouts.blocks import (
    block_config,
    check_sizes,
    read_block,
    read_rope,
    read_rotary,
)
from export.heads.layouts.checks import check_hidden, check_vocabulary, fill, number
from export.heads.layouts.files import HeadFiles
from export.heads.mtp import Family, Mtp, MtpShape

_ANCHORS: dict[Family, re.Pattern[str]] = {
    "deepseek": re.compile(r"^model\.layers\.(\d+)\.(?:eh_proj|enorm|hnorm)\.weight$"),
    "mimo": re.compile(r"^model\.mtp_layers\.(\d+)\.(?:input_proj|token_layernorm)\.weight$"),
}
_CONTAINERS: dict[Family, str] = {"deepseek": "model.layers", "mimo": "model.mtp_layers"}
_SPARE = ("rotary_emb.",)


def family_of(files: HeadFiles) -> Family | None:
    for family, anchor in _ANCHORS.items():
        if any(anchor.match(name) for name in files.homes):
            return family
    return None


def read_mtp(files: HeadFiles, facts: TargetFacts) -> tuple[Mtp, HeadInfo]:
    family = family_of(files)
    assert family is not None
    numbers = sorted(
        {int(match[1]) for name in files.homes if (match := _ANCHORS[family].match(name))}
    )
    if numbers != list(range(numbers[0], numbers[0] + len(numbers))):
        raise files.refused(f"has MTP modules numbered {numbers}: some are missing")
    container = _CONTAINERS[family]
    prefixes = tuple(f"{container}.{number_}." for number_ in numbers)
    names = [name for name in files.homes if name.startswith(prefixes)]
    block = read_block(files, files.config, names, prefixes[0])
    check_hidden(files, block.hidden, facts)
    vocab_size = number(files, files.config, "vocab_size", facts.vocab_size)
    check_vocabulary(files, vocab_size, facts)
    check_sizes(files, block, prefixes[0])
    shape = MtpShape(
        block=block,
        vocab_size=vocab_size,
        family=family,
        modules=len(numbers),
        first=numbers[0],
        own_embeddings=f"{prefixes[0]}embed_tokens.weight" in names,
        own_head=f"{prefixes[0]}shared_head.head.weight" in names,
    )
    rope = read_rope(files, files.config)
    module = Mtp(
        shape, read_rotary(files, rope, block.head_dim, facts), facts.embeddings, facts.lm_head
    )
    fill(module, files, lambda name: name, names, _SPARE)
    return module, HeadInfo("mtp", family, "hidden", lookahead=len(numbers), rope=rope)


def mtp_config(module: Mtp, info: HeadInfo) -> dict[str, Any]:
    shape = module.shape
    deepseek = shape.family == "deepseek"
    return {
        "architectures": ["DeepSeekMTPModel" if deepseek else "MiMoMTPModel"],
        "num_hidden_layers": shape.first,
        "num_nextn_predict_layers": shape.modules,
        "vocab_size": shape.vocab_size,
        **block_config(shape.block, info.rope),
    }
