"""Packages whose target gives out features, made from those that do not."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path

import onnx

from export.compact import compact_graph
from export.features import Features, add_features
from export.rows import derive_rows
from export.writer import save_graph
from models.package import DrafterSpec, Package, file_entry, load_package, write_manifest

TAP_LAYERS = (0, 1, 2)
COMPACT = "target.compact.onnx"


def featured(
    package: Package,
    directory: Path,
    features: Features | None = None,
    drafters: tuple[DrafterSpec, ...] = (),
    files: Mapping[str, Path] | None = None,
) -> Package:
    """A copy of `package` in `directory` with `features`, and with `drafters` made of `files`."""
    features = Features(hidden=True, tap_layers=TAP_LAYERS) if features is None else features
    directory.mkdir(parents=True, exist_ok=True)
    target = package.manifest.target
    single = onnx.load(package.file(target.graphs["1"]), load_external_data=False)
    single = add_features(single, features)
    graphs = set(target.graphs.values()) | set(target.tree_graphs.values())
    for name in package.manifest.files.keys() - graphs:
        os.link(package.file(name), directory / name)
    for name, source in (files or {}).items():
        os.link(source, directory / name)
    for rows, name in target.graphs.items():
        save_graph(derive_rows(single, int(rows)), directory / name)
    for rows, name in target.tree_graphs.items():
        save_graph(derive_rows(single, int(rows), trees=True), directory / name)
    save_graph(compact_graph(single), directory / COMPACT)
    manifest = dataclasses.replace(
        package.manifest,
        target=dataclasses.replace(
            target,
            features=features.widths(target.hidden_size),
            tap_layers=features.tap_layers,
            compact_graph=COMPACT,
        ),
        drafters=drafters,
        files={path.name: file_entry(path) for path in sorted(directory.iterdir())},
    )
    write_manifest(directory, manifest)
    return load_package(directory)
