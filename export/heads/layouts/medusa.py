"""Medusa heads as FasterDecoding publishes them: `medusa_lm_head.pt` or `.safetensors`.

Names may have `medusa_head.` before them, as in a checkpoint of the whole model. Where
`medusa_num_heads` is fewer than there are, the first ones are used.
"""

from __future__ import annotations

import re
from typing import Any

from export.heads.facts import HeadInfo, TargetFacts
from export.heads.layouts.checks import check_hidden, check_vocabulary, count, fill
from export.heads.layouts.files import HeadFiles
from export.heads.medusa import Medusa, MedusaShape

_PREFIX = "medusa_head."
_NAME = re.compile(r"^(?:medusa_head\.)?(\d+)\.(\d+)\.(linear\.weight|linear\.bias|weight)$")


def is_medusa(files: HeadFiles) -> bool:
    return any(_NAME.match(name) for name in files.homes)


def read_medusa(files: HeadFiles, facts: TargetFacts) -> tuple[Medusa, HeadInfo]:
    found = {name: match for name in files.homes if (match := _NAME.match(name))}
    prefix = _PREFIX if next(iter(found)).startswith(_PREFIX) else ""
    layers = count(files, files.config, "medusa_num_layers", 1)
    there = 1 + max(int(match[1]) for match in found.values())
    heads = count(files, files.config, "medusa_num_heads", there)
    outputs = [name for name, match in found.items() if match[3] == "weight"]
    first = files.read([n for n in (f"{prefix}0.0.linear.weight", *outputs[:1]) if n in found])
    for name, tensor in first.items():
        if tensor.dim() != 2:
            raise files.refused(f"has {name} of shape {list(tensor.shape)}, which is no matrix")
        check_hidden(files, int(tensor.shape[-1]), facts, f"{name}")
        if name in outputs:
            check_vocabulary(files, int(tensor.shape[0]), facts)
    declared = files.config.get("vocab_size")
    if isinstance(declared, int):
        check_vocabulary(files, declared, facts)
    vocab_size = int(first[outputs[0]].shape[0]) if outputs else facts.vocab_size
    shape = MedusaShape(facts.hidden, vocab_size, heads, layers, own_head=bool(outputs))
    module = Medusa(shape, facts.lm_head)
    used = [name for name, match in found.items() if int(match[1]) < heads]
    others = [name for name in files.homes if name not in found and not prefix]
    fill(module, files, lambda name: prefix + name, [*used, *others])
    return module, HeadInfo("medusa", "fasterdecoding", "hidden", lookahead=0)


def medusa_config(module: Medusa, name: str) -> dict[str, Any]:
    return {
        "medusa_num_heads": module.shape.heads,
        "medusa_num_layers": module.shape.layers,
        "base_model_name_or_path": name,
        "hidden_size": module.shape.hidden,
        "vocab_size": module.shape.vocab_size,
    }
