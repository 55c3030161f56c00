"""What a package takes of a GPU's memory.

All that is counted lies there: weights, K/V, features, logits, and what graphs work in. Not counted
are CUDA's own context and libraries, and what a captured graph keeps, of which nothing is known
before they are there.
"""

from __future__ import annotations

from collections.abc import Iterable

from models.package import DrafterSpec, Package, TargetSpec
from models.providers import GEMMS, DeviceOptions

LEAST_LOGITS = 64
"""Rows of logits that there is room for, at least."""

_COPYING = ("int4", "int8")
"""Weights that the products `fpa-intb` read in an order of their own, which each graph makes."""


def on_gpu(spec: TargetSpec) -> bool:
    """Whether the package's graphs, and all that they read and write, lie on a GPU."""
    return spec.device != "cpu"


def graphs_in_use(row_counts: Iterable[int], slots: int) -> list[int]:
    """The rows of the graphs that runs of up to `slots` rows go to."""
    sizes = sorted(row_counts)
    counts = range(1, 1 + min(sizes[-1], slots))
    return sorted({min(size for size in sizes if size >= count) for count in counts})


def engine_count(row_counts: Iterable[int], slots: int, use: DeviceOptions) -> int:
    """Engines that TensorRT builds: one for each width and graph, and one a graph for others."""
    sizes = sorted(row_counts)
    wide = len(graphs_in_use(sizes, slots))
    narrow = wide if use.strict_width is None else 1
    return narrow * len(use.widths) + wide


def weight_bytes(package: Package, slots: int, use: DeviceOptions) -> int:
    """Of the target's weights, in all their copies. A TensorRT engine has its own."""
    target = package.manifest.target
    size = package.manifest.files[target.weights].bytes
    if target.device == "tensorrt":
        return size * engine_count(package.row_counts, slots, use)
    copies = 1 if use.share_weights else len(target.graphs)
    if use.gemm == GEMMS[2] and target.weight_type in _COPYING:
        copies += len(target.graphs)
    return size * copies


def drafter_bytes(package: Package, spec: DrafterSpec, use: DeviceOptions) -> int:
    """Of a drafter's weights; its graphs are CUDA's, also beside TensorRT."""
    files = package.manifest.files
    if use.share_weights:
        # Those that it has in common with the target are there.
        target = package.manifest.target
        shared = {target.weights} if target.device == "cuda" else set()
        return sum(files[name].bytes for name in spec.weights if name not in shared)
    graphs = len(spec.graphs) + len(spec.tree_graphs)
    return graphs * sum(files[name].bytes for name in spec.weights)


def tree_bytes(package: Package, use: DeviceOptions) -> int:
    """Of the weights that the graphs for trees bring."""
    target = package.manifest.target
    copies = 0 if use.share_weights else len(target.tree_graphs)
    return copies * package.manifest.files[target.weights].bytes


def work_bytes(package: Package, slots: int, context: int, widest: int, use: DeviceOptions) -> int:
    """Of the logits and of what runs work in. Each graph keeps what its widest run took, `use`'s
    bound at most."""
    target = package.manifest.target
    sizes, narrow = graphs_in_use(package.row_counts, slots), max(use.widths)
    logits = max(LEAST_LOGITS, max(package.row_counts) * narrow) * target.vocab_size * 4
    if target.device == "tensorrt":
        # A chunk of a prompt runs beside other rows, and scores are not known to stay unwritten.
        tokens = [size * width for size in sizes for width in use.widths]
        tokens += [widest + (size - 1) * narrow for size in sizes]
        return logits + sum(_run_bytes(target, count, context) for count in tokens)
    tokens = [max(size * narrow, widest if size == sizes[0] else 0) for size in sizes]
    works = [_run_bytes(target, count, 0) for count in tokens]
    if use.memory_mib is not None:
        works = [min(work, use.memory_mib << 20) for work in works]
    return logits + sum(works)


def _run_bytes(target: TargetSpec, tokens: int, context: int) -> int:
    """Of a run's activations; `context` is how many scores each head of a token has written down,
    0 where the kernel keeps them to itself."""
    heads = target.heads + 2 * target.kv_heads
    linear = tokens * (target.hidden_size + heads * target.head_dim) * 4 * 8
    return linear + target.heads * tokens * context * 4
