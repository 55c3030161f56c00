"""Ways of drafting as command lines name them: `eagle3:3`, `medusa:8x3`, `cascade:auto`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from bench.drafting import AUTO, OFF
from bench.naturals import natural
from gateway.engine.requests import MOST_BRANCHES
from models.errors import UserError
from models.package import DrafterSpec, Manifest

ALL = "all"
NGRAM, CASCADE = "ngram", "cascade"
_LONGEST = 31

_CHAINS: Mapping[str, int] = MappingProxyType(
    {NGRAM: 8, "draft-model": 4, "self-speculative": 3, CASCADE: 8}
)
"""Draft lengths where none is given; 3 for heads."""

_HEAD_LENGTH = 3
_TREES: Mapping[str, tuple[int, int]] = MappingProxyType({"medusa": (8, 3)})
_TREE = (8, 4)


@dataclass(frozen=True, slots=True)
class Way:
    """A drafter with its draft length (None: policy `auto`) and the branches it may have."""

    drafter: str
    length: int | None
    branches: int = 1

    @property
    def name(self) -> str:
        if self.drafter == OFF:
            return OFF
        length = AUTO if self.length is None else str(self.length)
        return f"{self.drafter}:{length}" + (f"x{self.branches}" if self.branches > 1 else "")

    @property
    def wire(self) -> dict[str, Any]:
        """The request's `speculation` object."""
        if self.drafter == OFF:
            return {"policy": OFF}
        policy: dict[str, Any] = {"policy": AUTO}
        if self.length is not None:
            policy = {"policy": "fixed", "length": self.length}
        return {"drafter": self.drafter, "branches": self.branches, **policy}


PLAIN = Way(OFF, None)


def drafters_of(manifest: Manifest) -> tuple[str, ...]:
    """What requests to this package may ask for, combinations but the default one apart."""
    learned = tuple(spec.kind for spec in manifest.drafters)
    return (NGRAM, *learned, CASCADE) if learned else (NGRAM,)


def parse_drafters(text: str, manifest: Manifest) -> tuple[str, ...]:
    """Names of drafters, combinations of them, `all`. Raises `UserError` for others."""
    names = _parts(text, manifest)
    for name in names:
        _require(name, manifest)
    if len(set(names)) < len(names):
        raise UserError("--drafters names one twice.", code="usage", param="drafters")
    return tuple(names)


def branching(drafters: Sequence[str], manifest: Manifest) -> list[str]:
    """Those of `drafters` that can draft trees."""
    return [name for name in drafters if can_branch(name, manifest.drafters)]


def parse_ways(text: str, manifest: Manifest) -> list[Way]:
    """`text` is a list of `DRAFTER[:LENGTH|auto[xBRANCHES]]` and `all`.

    A drafter without a length stands for its usual chain and, where the package can verify trees
    and it can draft them, its usual tree. Raises `UserError` for what this package cannot do.
    """
    ways: list[Way] = []
    for part in _parts(text, manifest):
        ways += _ways(part, manifest)
    if len(set(ways)) < len(ways):
        raise UserError("--drafters names one way twice.", code="usage", param="drafters")
    return ways


def _parts(text: str, manifest: Manifest) -> list[str]:
    """What is between the commas, with `all` replaced by what it means."""
    parts: list[str] = []
    for part in map(str.strip, text.split(",")):
        parts += drafters_of(manifest) if part == ALL else (part,)
    return parts


def _ways(part: str, manifest: Manifest) -> Sequence[Way]:
    drafter, colon, rest = part.partition(":")
    _require(drafter, manifest)
    if not colon:
        return _usual(drafter, manifest)
    length, cross, branches = rest.partition("x")
    if cross and not manifest.target.tree_graphs:
        raise UserError(
            f"--drafters has {part!r}; the package cannot verify trees.",
            code="usage",
            param="drafters",
        )
    return [
        Way(
            drafter,
            None if length == AUTO else _number(length, _LONGEST, part),
            _number(branches, MOST_BRANCHES, part) if cross else 1,
        )
    ]


def _require(drafter: str, manifest: Manifest) -> None:
    for name in drafter.split("+"):
        if name not in drafters_of(manifest):
            found = repr(name) if name else "no name where one is wanted"
            raise UserError(
                f"--drafters has {found}; the package has {', '.join(drafters_of(manifest))}.",
                code="usage",
                param="drafters",
            )


def _usual(drafter: str, manifest: Manifest) -> list[Way]:
    ways = [Way(drafter, _CHAINS.get(drafter, _HEAD_LENGTH))]
    if manifest.target.tree_graphs and can_branch(drafter, manifest.drafters):
        ways.append(Way(drafter, *_TREES.get(drafter, _TREE)))
    if drafter == CASCADE:
        ways.append(Way(drafter, None))
    return ways


def can_branch(drafter: str, specs: Sequence[DrafterSpec]) -> bool:
    """Whether it, or one of those it is made of, drafts trees."""
    heads = [spec for spec in specs if spec.tree_graphs or spec.kind == "medusa"]
    names = {NGRAM, *(spec.kind for spec in heads)}
    return drafter == CASCADE or bool(names & set(drafter.split("+")))


def _number(text: str, most: int, part: str) -> int:
    number = natural(text, most)
    if number is None:
        raise UserError(
            f"--drafters has {part!r}; a length is `auto` or 1 to {_LONGEST}, then perhaps"
            f" x2 to x{MOST_BRANCHES} for branches, as in eagle3:8x4.",
            code="usage",
            param="drafters",
        )
    return number
