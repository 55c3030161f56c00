"""Trained weights as they are published: fp16 tensors, and a config that names their target."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import save
from torch import Tensor

from export.heads.facts import TargetFacts
from export.heads.layouts.checks import TARGET


def publish(
    path: Path, tensors: Mapping[str, Tensor], config: Mapping[str, Any], facts: TargetFacts
) -> None:
    """`tensors` in the safetensors file `path`, `config` in the config.json beside it.

    Another target than that of `facts` will refuse them.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    stored = {name: _stored(tensor) for name, tensor in tensors.items()}
    named = {**config, TARGET: {"checkpoint": facts.name, "sha256": facts.sha256}}
    text = json.dumps(named, indent=2, sort_keys=True) + "\n"
    # Not save_file: it makes files that nobody else may read.
    weights = _beside(path, save(stored, metadata={"format": "pt"}))
    _beside(path.parent / "config.json", text.encode()).replace(path.parent / "config.json")
    weights.replace(path)


def _beside(path: Path, content: bytes) -> Path:
    """The content in a file that can take the place of `path`: a kill leaves no half of it."""
    scratch = path.with_name(f".{path.name}.tmp")
    scratch.write_bytes(content)
    return scratch


def _stored(tensor: Tensor) -> Tensor:
    tensor = tensor.detach().cpu()
    return (tensor.half() if tensor.is_floating_point() else tensor).contiguous()
