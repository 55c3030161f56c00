"""The lists that questions are drawn from. They lie in `material/`; '#' begins a comment there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import TypeVar

import numpy as np

Entry = TypeVar("Entry")


@dataclass(frozen=True, slots=True)
class Material:
    """`german` are sentences with slots, `words` what may stand in a slot, `foreign` other
    languages' sentences with the language, `topics` groups of related ones, `openers` and `facts`
    beginnings of requests and of short questions."""

    german: tuple[str, ...]
    words: Mapping[str, tuple[str, ...]]
    foreign: tuple[tuple[str, str], ...]
    topics: tuple[tuple[str, ...], ...]
    news: tuple[str, ...]
    places: tuple[str, ...]
    openers: tuple[str, ...]
    facts: tuple[str, ...]
    followups: tuple[str, ...]


def load_material() -> Material:
    words, languages = (
        [line.partition(": ") for line in _lines(name)] for name in ("words", "languages")
    )
    return Material(
        german=_lines("german"),
        words={name: tuple(values.split("|")) for name, _, values in words},
        foreign=tuple((language, text) for language, _, text in languages),
        topics=tuple(tuple(line.split("|")) for line in _lines("topics")),
        news=_lines("news"),
        places=_lines("places"),
        openers=_lines("openers"),
        facts=_lines("facts"),
        followups=_lines("followups"),
    )


def pick(draw: np.random.Generator, entries: Sequence[Entry]) -> Entry:
    return entries[int(draw.integers(len(entries)))]


def chance(draw: np.random.Generator, probability: float) -> bool:
    return bool(draw.random() < probability)


def _lines(name: str) -> tuple[str, ...]:
    path = resources.files("export.training").joinpath("material", f"{name}.txt")
    lines = path.read_text(encoding="utf-8").splitlines()
    return tuple(line for line in lines if line and not line.startswith("#"))
