"""Check a configuration without loading a model: would serve start, and is it safe?"""

from __future__ import annotations

import argparse
import os
import stat
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path

from gateway.commands.listening import look_at
from gateway.commands.options import add_setting_flags, settings_of
from gateway.commands.serve import make_tls, require_safe_address
from gateway.engine.loading import slot_context
from gateway.engine.names import resolve
from gateway.fleet.sources import read_sources
from gateway.http.guard import is_loopback
from gateway.http.keys import key_files, key_ring
from gateway.installing.machine import user_configuration
from gateway.installing.watchdogs import SYSTEM_PLACES, read_unit, user_places
from gateway.service_manager.order import contradiction
from gateway.settings import Settings
from models.errors import UserError
from models.locations import cache_directory
from models.memory import available_on, format_bytes, memory_need, why_unknown
from models.package import Package, load_package


@dataclass(frozen=True, slots=True)
class Finding:
    """What was looked at and what is to be said of it; `problem`: serve would not start with it, or
    should not."""

    about: str
    told: str
    problem: bool = False

    def line(self) -> str:
        return f"{'FAIL' if self.problem else 'ok':<5} {self.about:<9} {self.told}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_setting_flags(parser)
    parser.add_argument(
        "--digests", action="store_true", help="read every file of the package whole, as serve does"
    )


def run(parsed: argparse.Namespace) -> int:
    problems = 0
    for finding in examine(parsed):
        print(finding.line())
        problems += finding.problem
    return 1 if problems else 0


def examine(parsed: argparse.Namespace) -> Iterator[Finding]:
    """Of settings that cannot be read nothing else is known."""
    try:
        settings = settings_of(parsed)
    except UserError as error:
        yield Finding("settings", error.message, problem=True)
        return
    named = parsed.config or os.environ.get("OUTPACE_CONFIG")
    yield Finding("settings", f"read from {named}" if named else "no file; environment and flags")
    yield _keys(settings)
    yield from _private_files(settings, None if named is None else Path(named))
    yield _tls(settings)
    place = look_at(settings)
    yield Finding("address", place.told, problem=place.problem)
    if named is not None:
        yield from _watchdog(settings, Path(named))
    packages = yield from _packages(settings, digests=parsed.digests)
    if packages:
        default = packages[0]  # what is loaded at start
        yield _found("drafter", lambda: _drafter(settings, default))
        yield _found("memory", lambda: _memory(settings, default, place.running))
    yield from _state(settings)


def _found(about: str, look: Callable[[], str]) -> Finding:
    try:
        return Finding(about, look())
    except UserError as error:
        return Finding(about, error.message, problem=True)


def _keys(settings: Settings) -> Finding:
    def look() -> str:
        keys = len(key_ring(settings, os.environ))
        require_safe_address(settings, keys)
        if keys:
            return f"{keys} in use"
        if is_loopback(settings.host):
            return "none, and only this machine can connect"
        return "none, and --insecure says that this is meant"

    return _found("keys", look)


def _private_files(settings: Settings, config: Path | None) -> Iterator[Finding]:
    """Files with secrets that every user of the machine can read."""
    secret = dict.fromkeys(key_files(settings, os.environ), "API keys")
    if config is not None and settings.api_keys and "OUTPACE_API_KEYS" not in os.environ:
        secret[config] = "API keys"
    key = settings.tls_key or settings.tls_certificate
    if key is not None:
        secret[key] = "the TLS key"
    for path, what in secret.items():
        try:
            mode = path.stat().st_mode
        except OSError:
            continue  # whoever reads it says so
        if mode & (stat.S_IROTH | stat.S_IWOTH):
            told = f"{path} has {what} and every user can read it (mode {mode & 0o777:04o});"
            yield Finding("files", f"{told} chmod o-rw {path}", problem=True)
        elif mode & stat.S_IWGRP:
            told = f"{path} has {what} and its group can change it (mode {mode & 0o777:04o});"
            yield Finding("files", f"{told} chmod g-w {path}", problem=True)
        else:
            yield Finding("files", f"{path} has {what}, mode {mode & 0o777:04o}")


def _tls(settings: Settings) -> Finding:
    def look() -> str:
        return "none: plain HTTP" if make_tls(settings) is None else "certificate and key fit"

    return _found("tls", look)


def _watchdog(settings: Settings, config: Path) -> Iterator[Finding]:
    """Of the services that are installed here and serve by this file."""
    for places in (SYSTEM_PLACES, user_places(user_configuration())):
        unit = read_unit(places)
        if unit is None or unit.config != config.absolute():
            continue
        problem = contradiction(unit.watchdog, settings.terms)
        if problem is not None:
            yield Finding("watchdog", f"{unit.path}: {problem}", problem=True)
        elif unit.watchdog is None:
            yield Finding("watchdog", f"none in {unit.path}: nothing ends a gateway that hangs")
        else:
            yield Finding("watchdog", f"{unit.watchdog:g} s in {unit.path}, after stuck runs end")


def _packages(settings: Settings, *, digests: bool) -> Generator[Finding, None, list[Package]]:
    """Those that are whole, the default first; none where that is not."""
    how = "every file read" if digests else "sizes compared"
    whole: dict[str, Package] = {}
    try:
        sources = read_sources(settings.package, settings.packages, settings.engine_options)
    except UserError as error:
        yield Finding("package", error.message, problem=True)
        return []
    for source in sources:
        assert source.path is not None, "it is one of the settings"
        if source.name in whole:
            told = f"two are called {source.name!r}: {source.path} and {whole[source.name].path}"
            yield Finding("package", told, problem=True)
            continue
        try:
            package = load_package(source.path, digests=digests)
        except UserError as error:
            yield Finding("package", error.message, problem=True)
            if source is sources[0]:
                return []
            continue
        whole[source.name] = package
        yield Finding("package", f"{source.name} in {source.path}, whole ({how})")
    return list(whole.values())


def _drafter(settings: Settings, package: Package) -> str:
    kinds = [spec.kind for spec in package.manifest.drafters]
    return "+".join(resolve(settings.speculation_drafter, kinds)) or "off"


def _memory(settings: Settings, package: Package, running: bool) -> str:
    """What is available counts, unless a gateway runs already and has what it needs."""
    context = slot_context(package, settings.engine_options)
    use = settings.engine_options.device_use
    need = memory_need(package, settings.slots, context, settings.prefill_chunk, use)
    needed = f"{need.describe()} needed"
    if running:
        return needed
    available = available_on(gpu=need.gpu)
    if available is None:
        return f"{needed}. {why_unknown(need)}"
    if need.total > available and settings.check_memory:
        raise UserError(
            f"{needed} and only {format_bytes(available)} available: fewer slots, or a shorter"
            " context.",
            code="out_of_memory",
        )
    return f"{needed}, {format_bytes(available)} available"


def _state(settings: Settings) -> Iterator[Finding]:
    """Directories that serve writes to. It does without them, but then measures and forgets."""
    for about, directory in (("cache", cache_directory()), ("n-grams", settings.ngram_store)):
        if directory is None:
            continue
        nearest = next(path for path in (directory, *directory.parents) if path.exists())
        if os.access(nearest, os.W_OK | os.X_OK):
            yield Finding(about, f"{directory} can be written")
        else:
            told = f"{directory} cannot be written"
            # Without a cache every start measures anew; a store that was asked for must be there.
            yield Finding(about, told, problem=about == "n-grams")
