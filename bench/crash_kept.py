"""What a gateway keeps on disk, and whether any of it is half written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from bench.crash_victim import KEY, OWNER, Place
from models.drafters.store_file import MAGIC, UNFINISHED, read_texts

BESIDE = (".partial", UNFINISHED)
"""Suffixes of files in the making, which nobody reads: they are taken away later."""

_PARTS = ("key", "measured_at", "points", "checks")
"""What a kept calibration has."""

Packages = Mapping[Path, tuple[int, int]]
"""Sizes and times of change of their files."""


def packages_of(place: Place) -> Packages:
    return {
        path: (path.stat().st_size, path.stat().st_mtime_ns)
        for package in (place.package, place.second)
        for path in sorted(package.rglob("*"))
        if path.is_file()
    }


def half_written(place: Place, before: Packages) -> list[str]:
    """What a reader of the files that are kept would stumble over, by name."""
    problems = [problem for path in _cached(place) if (problem := _broken(path))]
    if place.keys.read_text() != f"{OWNER}:{KEY}\n":
        problems.append("the file of keys was changed")
    now = packages_of(place)
    changed = [path for path in {**before, **now} if before.get(path) != now.get(path)]
    return problems + [f"{path.name} of a package was changed" for path in changed]


def torn(place: Place) -> list[str]:
    """Files of n-grams with something behind their last whole record, once a gateway has written
    to them again."""
    problems = []
    for path in place.texts.rglob("*.ngrams"):
        raw = path.read_bytes()
        owner = raw.removeprefix(MAGIC).partition(b"\n")[0].decode(errors="replace")
        _, whole = read_texts(path, owner)
        if whole != len(raw):
            problems.append(f"{path.name} has {len(raw) - whole} bytes that are no text")
    return problems


def _cached(place: Place) -> list[Path]:
    files = place.cache.rglob("*") if place.cache.is_dir() else ()
    return [path for path in files if path.is_file() and path.suffix not in BESIDE]


def _broken(path: Path) -> str | None:
    if path.suffix != ".json":
        return f"{path.name} is empty" if path.stat().st_size == 0 else None
    try:
        document = json.loads(path.read_bytes())
        if path.parent.name == "calibration" and not all(document[part] for part in _PARTS):
            return f"{path.name} is empty"
    except (ValueError, KeyError, TypeError):
        return f"{path.name} is cut off"
    return None
