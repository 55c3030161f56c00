"""The graphs of a package: one per row count, the same for trees, and the one that compacts K/V."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import onnx

from export.compact import check_compact, compact_graph
from export.feature_parity import check_features
from export.features import Features, add_features
from export.kept_features import keep_features
from export.parity import Reference, check_parity, check_rows
from export.rows import derive_rows, narrowest_window
from export.runner import available_devices
from export.standard import to_standard
from export.tree_parity import check_trees
from export.writer import externalise, save_graph
from models.memory import PAD_TOKENS

FEATURE_WEIGHTS = "target.features"
# Half precision keeps 11 bits where fp32 keeps 24; measured differences are a few hundredths.
HALF_SLACK = 50.0


@dataclass(frozen=True, slots=True)
class GraphFiles:
    """Graphs on disk, by row count; `compact` for packages whose K/V is on a device."""

    chains: Mapping[int, Path]
    trees: Mapping[int, Path] = field(default_factory=dict)
    compact: Path | None = None


def give_features(skeleton: onnx.ModelProto, features: Features, place: Path) -> onnx.ModelProto:
    """`skeleton` with `features`; what they need beside the weights goes to a file in `place`."""
    if not features:
        return skeleton
    file = place / FEATURE_WEIGHTS
    featured = externalise(add_features(skeleton, features), file)
    if not file.stat().st_size:
        file.unlink()
    return featured


def write_graphs(
    skeleton: onnx.ModelProto, place: Path, rows: Sequence[int], context: int, device: str
) -> GraphFiles:
    """Write what a package for `context` tokens on `device` needs beside the weights in `place`.

    `skeleton` is the graph for one row, its weights there already, with the features wanted.
    """
    finish = _FINISH.get(device, _as_it_is)
    chains = {count: place / f"target.r{count}.onnx" for count in rows}
    for count, path in chains.items():
        save_graph(finish(derive_rows(skeleton, count)), path)
    window = narrowest_window(skeleton)
    # TensorRT verifies chains only: a tree's mask would be another engine for every width.
    if device == "tensorrt" or (window is not None and window < context + PAD_TOKENS):
        return GraphFiles(chains)
    trees = {count: place / f"target.tree.r{count}.onnx" for count in rows}
    for count, path in trees.items():
        save_graph(finish(derive_rows(skeleton, count, trees=True)), path)
    if device != "cuda":
        return GraphFiles(chains, trees)
    compact = place / "target.compact.onnx"
    save_graph(compact_graph(skeleton), compact)
    return GraphFiles(chains, trees, compact)


def _for_engines(model: onnx.ModelProto) -> onnx.ModelProto:
    """Apart: operators that every parser of TensorRT 10 knows."""
    return to_standard(keep_features(model), fused=False)


_FINISH = {"cuda": keep_features, "tensorrt": _for_engines}


def _as_it_is(model: onnx.ModelProto) -> onnx.ModelProto:
    return model


def check_graphs(
    files: GraphFiles, reference: Reference, weight_type: str, package_device: str
) -> dict[str, float]:
    """Check the stored graphs: fp16 against torch, all others against the chain of one row.

    fp16 graphs run on the CPU too, slowly: that is where they are checked without a GPU.
    """
    device = package_device if package_device in available_devices() else "cpu"
    slack = 1.0 if package_device == "cpu" else HALF_SLACK
    chains, figures = files.chains, dict[str, float]()
    if weight_type == "fp16":
        half = check_parity(chains[1], reference, device=device, slack=slack)
        figures |= {f"fp16_{name}": value for name, value in half.items() if name != "tokens"}
    if reference.features:
        figures |= check_features(
            chains[1], reference, device=device, rounded=weight_type != "fp32"
        )
    several = {rows: path for rows, path in chains.items() if rows > 1}
    if several:
        figures |= check_rows(chains[1], several, reference, device=device, slack=slack)
    if files.trees:
        quantised = weight_type not in ("fp32", "fp16")
        figures |= check_trees(
            chains, files.trees, reference, device=device, slack=slack, quantised=quantised
        )
    if files.compact is not None:
        check_compact(files.compact)
    return figures
