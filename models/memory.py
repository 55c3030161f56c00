"""Memory a package needs, computed before any of it is taken."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from models.errors import UserError
from models.package import Package, TargetSpec

PAD_TOKENS = 2
"""Positions a slot has beyond the context: a lone token is padded, and the pad's K/V needs room."""

_KV_BYTES = {"fp32": 4, "fp16": 2}


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """Bytes. `weights` counts the mapped file once and each graph's prepacked copy."""

    weights: int
    kv: int
    work: int

    @property
    def total(self) -> int:
        return self.weights + self.kv + self.work

    def describe(self) -> str:
        return (
            f"{format_bytes(self.total)} (weights {format_bytes(self.weights)},"
            f" K/V {format_bytes(self.kv)}, work {format_bytes(self.work)})"
        )


def memory_need(package: Package, slots: int, context: int, widest: int) -> MemoryNeed:
    """What `slots` slots of `context` tokens and runs up to `widest` tokens need."""
    target = package.manifest.target
    weights = package.manifest.files[target.weights].bytes
    heads = target.heads + 2 * target.kv_heads
    attention = target.heads * widest * context * 4
    linear = widest * (target.hidden_size + heads * target.head_dim) * 4 * 8
    logits = 64 * target.vocab_size * 4
    return MemoryNeed(
        weights=weights * (1 + len(target.graphs)),
        kv=slots * slot_bytes(target, context),
        work=attention + linear + logits,
    )


def slot_bytes(target: TargetSpec, context: int) -> int:
    shape = (target.layers, 2, target.kv_heads, context + PAD_TOKENS, target.head_dim)
    return math.prod(shape) * _KV_BYTES[target.kv_type]


def available_bytes() -> int | None:
    """Memory the system can give without swapping; None where it does not say."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def require_memory(need: MemoryNeed) -> None:
    """Raise `UserError` (`out_of_memory`) with the figures when `need` does not fit."""
    available = available_bytes()
    if available is not None and need.total > available:
        raise UserError(
            f"the package needs {need.describe()} and only {format_bytes(available)} of memory is"
            " available. Use fewer slots (--slots) or a shorter context (--context).",
            code="out_of_memory",
            param="slots",
        )


def tree_bytes(package: Package) -> int:
    """What the graphs for trees take beside those loaded at the start: their prepacked weights."""
    target = package.manifest.target
    return len(target.tree_graphs) * package.manifest.files[target.weights].bytes


def require_tree_memory(package: Package) -> None:
    """Raise `UserError` (`out_of_memory`) when the graphs for trees do not fit any more."""
    available, needed = available_bytes(), tree_bytes(package)
    if available is not None and needed > available:
        raise UserError(
            f"drafts that branch need graphs of {format_bytes(needed)} and only"
            f" {format_bytes(available)} of memory is available. Ask for one branch, or export the"
            " package for fewer rows (--rows).",
            code="out_of_memory",
            param="speculation.branches",
        )


def format_bytes(count: int) -> str:
    if count >= 1 << 30:
        return f"{count / (1 << 30):.1f} GiB"
    return f"{count / (1 << 20):.0f} MiB"
