"""A second package for those who have only one."""

from __future__ import annotations

import dataclasses
import os
import shutil
from pathlib import Path

from models.package import Package, load_package, write_manifest

SUFFIX = "-again"


def renamed(package: Package, directory: Path, name: str | None = None) -> Package:
    """The same package under another name: its files are linked where that is possible."""
    directory.mkdir(parents=True)
    for file in package.manifest.files:
        _link(package.file(file), directory / file)
    name = name or package.manifest.name + SUFFIX
    write_manifest(directory, dataclasses.replace(package.manifest, name=name))
    return load_package(directory)


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copyfile(source, target)
