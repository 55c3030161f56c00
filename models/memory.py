"""Memory a package needs, computed before any of it is taken."""

from __future__ import annotations

import math
import resource
from dataclasses import dataclass
from pathlib import Path

from models import gpu_memory
from models.errors import UserError
from models.gpu_memory import on_gpu
from models.nvml import free_memory
from models.package import DrafterSpec, Package, TargetSpec
from models.providers import DEFAULT_OPTIONS, DeviceOptions

PAD_TOKENS = 2
"""Positions a slot has beyond the context: a lone token is padded, and the pad's K/V needs room."""

_KV_BYTES = {"fp32": 4, "fp16": 2}
_ANYWAY = "With --no-check-memory it is tried all the same."


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """Bytes. `weights` counts the mapped file once and each graph's prepacked copy.

    `features` are what drafters read, kept for every token; `drafters` the K/V of their own. With
    `gpu` all of it lies on one, nothing of it in the host's memory, and `weights` are the copies
    that there are of them.
    """

    weights: int
    kv: int
    work: int
    features: int = 0
    drafters: int = 0
    gpu: bool = False

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
        where = " of the GPU's memory" if self.gpu else ""
        return f"{format_bytes(self.total)}{where} ({listed})"


def memory_need(
    package: Package,
    slots: int,
    context: int,
    widest: int,
    use: DeviceOptions = DEFAULT_OPTIONS,
) -> MemoryNeed:
    """What `slots` slots of `context` tokens and runs up to `widest` tokens need, where the
    package's graphs run; `use` is how, if that is a GPU."""
    target = package.manifest.target
    if on_gpu(target):
        weights = gpu_memory.weight_bytes(package, slots, use)
        work = gpu_memory.work_bytes(package, slots, context, widest, use)
        # The slot of rows that are not there has K/V and features too.
        spare = context if target.device == "tensorrt" else max(use.widths)
    else:
        weights = package.manifest.files[target.weights].bytes * (1 + len(target.graphs))
        work = _host_work(target, context, widest)
        spare = None
    contexts = [context] * slots + ([] if spare is None else [spare])
    return MemoryNeed(
        weights=weights,
        kv=sum(slot_bytes(target, each) for each in contexts),
        work=work,
        features=sum(feature_bytes(target, each) for each in contexts),
        drafters=slots
        * sum(
            drafter_state_bytes(spec, target.kv_type, context) for spec in package.manifest.drafters
        ),
        gpu=on_gpu(target),
    )


def _host_work(target: TargetSpec, context: int, widest: int) -> int:
    heads = target.heads + 2 * target.kv_heads
    attention = target.heads * widest * context * 4
    linear = widest * (target.hidden_size + heads * target.head_dim) * 4 * 8
    return attention + linear + 64 * target.vocab_size * 4


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


def drafter_weight_bytes(
    package: Package, spec: DrafterSpec, use: DeviceOptions = DEFAULT_OPTIONS
) -> int:
    """Of a drafter's weights: the mapped files once, and each graph's prepacked copy.

    The first file has the linear layers; tables that are only looked up are not copied. On a GPU
    nothing is prepacked, and what is shared is there once.
    """
    if on_gpu(package.manifest.target):
        return gpu_memory.drafter_bytes(package, spec, use)
    sizes = [package.manifest.files[name].bytes for name in spec.weights]
    return sum(sizes) + sum(sizes[:1]) * (len(spec.graphs) + len(spec.tree_graphs))


def require_drafter_memory(
    package: Package, spec: DrafterSpec, use: DeviceOptions = DEFAULT_OPTIONS
) -> None:
    """Raise `UserError` (`out_of_memory`) when a drafter's graphs do not fit any more."""
    gpu = on_gpu(package.manifest.target)
    available, needed = available_on(gpu=gpu), drafter_weight_bytes(package, spec, use)
    if available is not None and needed > available:
        raise UserError(
            f"the drafter {spec.kind} needs {format_bytes(needed)} for its graphs and only"
            f" {_available(available, gpu=gpu)}. Choose another drafter, or start with fewer slots"
            f" (--slots) or a shorter context (--context). {_ANYWAY}",
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


def available_on(*, gpu: bool) -> int | None:
    """Memory that can be had on the GPU, or else of the system; None where neither says."""
    return free_memory().bytes if gpu else available_bytes()


def why_unknown(need: MemoryNeed) -> str | None:
    """A sentence that says why nobody can say whether `need` fits; None where one can."""
    if not need.gpu:
        unknown = available_bytes() is None
        return "This system does not say how much memory it has." if unknown else None
    free = free_memory()
    if free.bytes is not None:
        return None
    return f"How much of the GPU's memory is free is not known: {free.why}."


def require_memory(need: MemoryNeed, promised: int = 0) -> None:
    """Raise `UserError` (`out_of_memory`) with the figures when `need` does not fit. Where nobody
    can say whether it does (`why_unknown`), that is no reason against it.

    `promised` bytes of what is still there were promised to packages that are loaded: of the
    system's memory a slot's K/V is taken only as it is written.
    """
    available = available_on(gpu=need.gpu)
    if available is None or need.total + promised <= available:
        return
    others = f", {format_bytes(promised)} of it promised to what is loaded" if promised else ""
    raise UserError(
        f"the package needs {need.describe()} and only {_available(available, gpu=need.gpu)}"
        f"{others}. Use fewer slots (--slots) or a shorter context (--context)"
        + (", or unload another package. " if promised else ". ")
        + _ANYWAY,
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


def tree_bytes(package: Package, use: DeviceOptions = DEFAULT_OPTIONS) -> int:
    """What the graphs for trees take beside those loaded at the start: their prepacked weights, or
    on a GPU their own copies."""
    if on_gpu(package.manifest.target):
        return gpu_memory.tree_bytes(package, use)
    target = package.manifest.target
    return len(target.tree_graphs) * package.manifest.files[target.weights].bytes


def require_tree_memory(package: Package, use: DeviceOptions = DEFAULT_OPTIONS) -> None:
    """Raise `UserError` (`out_of_memory`) when the graphs for trees do not fit any more."""
    gpu = on_gpu(package.manifest.target)
    available, needed = available_on(gpu=gpu), tree_bytes(package, use)
    if available is not None and needed > available:
        raise UserError(
            f"drafts that branch need graphs of {format_bytes(needed)} and only"
            f" {_available(available, gpu=gpu)}. Ask for one branch, or export the package for"
            f" fewer rows (--rows). {_ANYWAY}",
            code="out_of_memory",
            param="speculation.branches",
        )


def _available(count: int, *, gpu: bool) -> str:
    where = "the GPU's memory is free" if gpu else "memory is available"
    return f"{format_bytes(count)} of {where}"


def format_bytes(count: int) -> str:
    if count >= 1 << 30:
        return f"{count / (1 << 30):.1f} GiB"
    return f"{count / (1 << 20):.0f} MiB"
