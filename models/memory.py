"""Memory a package needs, computed before any of it is taken."""

from __future__ import annotations

import math
import resource
from dataclasses import dataclass
from pathlib import Path

from models.errors import UserError
from models.package import DrafterSpec, Package, TargetSpec

PAD_TOKENS = 2
"""Positions a slot has beyond the context: a lone token is padded, and the pad's K/V needs room."""

_KV_BYTES = {"fp32": 4, "fp16": 2}


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """Bytes. `weights` counts the mapped file once and each graph's prepacked copy.

    `features` are what drafters read, kept for every token; `drafters` the K/V of their own.
    """

    weights: int
    kv: int
    work: int
    features: int = 0
    drafters: int = 0

    @property
    def total(self) -> int:
        return self.weights + self.kv + self.work + self.features + self.drafters

    def describe(self) -> str:
        parts = {
            "weights": self.weights,
            "K/V": self.kv,
            "features": self.features,
            "drafters' K/V": self.drafters,
            "work": self.work,
        }
        always = ("weights", "K/V", "work")
        listed = ", ".join(
            f"{name} {format_bytes(count)}"
            for name, count in parts.items()
            if count or name in always
        )
        return f"{format_bytes(self.total)} ({listed})"


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
        features=slots * feature_bytes(target, context),
        drafters=slots
        * sum(
            drafter_state_bytes(spec, target.kv_type, context) for spec in package.manifest.drafters
        ),
    )


def slot_bytes(target: TargetSpec, context: int) -> int:
    shape = (target.layers, 2, target.kv_heads, context + PAD_TOKENS, target.head_dim)
    return math.prod(shape) * _KV_BYTES[target.kv_type]


def feature_bytes(target: TargetSpec, context: int) -> int:
    """Of the features that a slot keeps."""
    width = sum(target.features.values())
    return (context + PAD_TOKENS) * width * _KV_BYTES[target.kv_type]


def drafter_context(spec: DrafterSpec, context: int) -> int:
    """How far a drafter reaches in slots for `context` tokens."""
    return context if spec.context_length is None else min(context, spec.context_length)


def drafter_state_bytes(spec: DrafterSpec, kv_type: str, context: int) -> int:
    """Of a drafter's own K/V in a slot."""
    capacity = drafter_context(spec, context) + PAD_TOKENS
    return math.prod((spec.layers, 2, spec.kv_heads, capacity, spec.head_dim, _KV_BYTES[kv_type]))


def drafter_weight_bytes(package: Package, spec: DrafterSpec) -> int:
    """Of a drafter's weights: the mapped files once, and each graph's prepacked copy.

    The first file has the linear layers; tables that are only looked up are not copied.
    """
    sizes = [package.manifest.files[name].bytes for name in spec.weights]
    return sum(sizes) + sum(sizes[:1]) * (len(spec.graphs) + len(spec.tree_graphs))


def require_drafter_memory(package: Package, spec: DrafterSpec) -> None:
    """Raise `UserError` (`out_of_memory`) when a drafter's graphs do not fit any more."""
    available, needed = available_bytes(), drafter_weight_bytes(package, spec)
    if available is not None and needed > available:
        raise UserError(
            f"the drafter {spec.kind} needs {format_bytes(needed)} for its graphs and only"
            f" {format_bytes(available)} of memory is available. Choose another drafter, or start"
            " with fewer slots (--slots) or a shorter context (--context).",
            code="out_of_memory",
            param="speculation.drafter",
        )


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


def require_memory(need: MemoryNeed, promised: int = 0) -> None:
    """Raise `UserError` (`out_of_memory`) with the figures when `need` does not fit.

    `promised` bytes of what the system still has were promised to packages that are loaded: a
    slot's K/V is taken from the system only as it is written.
    """
    available = available_bytes()
    if available is None or need.total + promised <= available:
        return
    others = f", {format_bytes(promised)} of it promised to what is loaded" if promised else ""
    raise UserError(
        f"the package needs {need.describe()} and only {format_bytes(available)} of memory is"
        f" available{others}. Use fewer slots (--slots) or a shorter context (--context)"
        + (", or unload another package." if promised else "."),
        code="out_of_memory",
        param="slots",
    )


def resident_bytes() -> int:
    """Memory that this process holds now; 0 where the system does not say."""
    try:
        pages = Path("/proc/self/statm").read_text().split()[1]
    except (OSError, IndexError):
        return 0
    return int(pages) * resource.getpagesize()


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
