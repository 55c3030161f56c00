"""Which packages are configured, by what their manifests say: none of their weights is read."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from gateway.engine.loading import slot_context
from gateway.engine.options import EngineOptions
from gateway.fleet.terms import Source
from models.errors import UserError
from models.memory import memory_need
from models.package import MANIFEST, Package, read_manifest

log = logging.getLogger(__name__)


def read_sources(first: Path, others: tuple[Path, ...], options: EngineOptions) -> list[Source]:
    """The packages at these places, the default first. A directory of packages stands for those in
    it, by their names.

    Raises `UserError` that names what is wrong with the default, or with one that was named itself.
    One of a directory that cannot be read is left out, and the log says so.
    """
    found = [*_at(first, options), *(each for path in others for each in _at(path, options))]
    if not found:
        read_manifest(first)  # says what is missing
    distinct: dict[Path | None, Source] = {}
    for source in found:
        distinct.setdefault(source.path, source)
    return list(distinct.values())


def options_of(source: Source, options: EngineOptions, *, default: bool) -> EngineOptions:
    """`options` for one of several packages: each has its own n-grams, because ids mean something
    else to each, and no longer a context than its own."""
    directory = options.ngram_store
    if directory is not None and not default:
        directory = directory / _plain(source.name)
    shorter = options.context and min(options.context, source.context_length)
    return replace(
        options,
        context=options.context if default else shorter,
        ngram_store=directory,
        check_memory=False,
    )


def first_package(path: Path) -> Path:
    """The package that is the default where a setting names `path`: itself, or the first inside."""
    inside = [] if (path / MANIFEST).is_file() else _inside(path)
    return inside[0] if inside else path


def _at(path: Path, options: EngineOptions) -> Iterator[Source]:
    inside = [] if (path / MANIFEST).is_file() else _inside(path)
    if not inside:
        yield _source(path, options)
    for each in inside:
        try:
            yield _source(each, options)
        except UserError as error:
            log.warning("%s is left out: %s", each, error.message)


def _inside(path: Path) -> list[Path]:
    try:
        return sorted(each for each in path.iterdir() if (each / MANIFEST).is_file())
    except OSError:
        return []


def _source(path: Path, options: EngineOptions) -> Source:
    package = Package(path.absolute(), read_manifest(path))
    most = package.manifest.target.context_length
    shorter = replace(options, context=options.context and min(options.context, most))
    context = slot_context(package, shorter)
    return Source(
        name=package.manifest.name,
        path=path.absolute(),
        manifest=package.manifest,
        context_length=context,
        need=memory_need(
            package, options.slots, context, options.prefill_chunk, options.device_use
        ),
    )


def _plain(name: str) -> str:
    """As the name of a directory."""
    return "package-" + "".join(each if each.isalnum() or each in "-_." else "_" for each in name)
