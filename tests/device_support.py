"""A device that is played by the processor: the same way through the code, other kernels."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import onnx

from export.kept_features import keep_features, read_features
from export.writer import save_graph
from models.package import MANIFEST, Package, file_entry, load_package, write_manifest
from models.providers import DEFAULT_OPTIONS, DeviceOptions, Provider


def played(use: DeviceOptions = DEFAULT_OPTIONS) -> Provider:
    """CUDA, with its name and its memory's replaced by the processor's."""
    return Provider("cuda", ("CPUExecutionProvider",), "cpu", use=use)


def for_device(package: Package, directory: Path) -> Package:
    """A copy of `package`, which has features, with its graphs as they are for a GPU."""
    directory.mkdir()
    target = package.manifest.target
    targets = {*target.graphs.values(), *target.tree_graphs.values()}
    drafters = {
        name
        for spec in package.manifest.drafters
        for name in (*spec.graphs.values(), *spec.tree_graphs.values())
    }
    for name in package.manifest.files:
        if name in targets | drafters:
            model = onnx.load(str(package.file(name)), load_external_data=False)
            changed = keep_features(model) if name in targets else read_features(model)
            save_graph(changed, directory / name)
        else:
            (directory / name).hardlink_to(package.file(name))
    files = {path.name: file_entry(path) for path in sorted(directory.iterdir())}
    assert MANIFEST not in files
    write_manifest(directory, dataclasses.replace(package.manifest, files=files))
    return load_package(directory)


def addresses(binding: Any) -> list[int]:
    """Of everything that a device binding keeps on the device."""
    if binding._sent is not None:
        return [*binding._sent.addresses.values(), *binding._received.addresses.values()]
    kept = (*binding._places.values(), *binding._lent.values(), *binding._fetched.values())
    return [value.data_ptr() for _, value in kept]
