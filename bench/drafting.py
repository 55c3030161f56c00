"""Settings as command lines name them: draft lengths, and the rules that verify the drafts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from bench.naturals import natural
from gateway.engine.requests import MOST_BRANCHES
from models.errors import UserError

OFF = "off"
AUTO = "auto"
COUPLED = "coupled"
_LONGEST = 31

LOSSLESS: Mapping[str, bool] = MappingProxyType(
    {COUPLED: True, "classic": True, "typical": False, "adasd": False, "synthetic": False}
)
"""Whether a rule keeps the target's distribution: what the gateway must say of its answers."""

_MEANINGLESS = "synthetic"


@dataclass(frozen=True, slots=True)
class Drafting:
    """A named way of drafting, as the wire's `speculation` object says it."""

    name: str
    wire: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Setting:
    """A draft length and the rule that verifies the drafts, None where nothing is drafted."""

    length: str
    rule: str | None
    branches: int
    wire: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The length, and the rule where it is not `coupled`."""
        return self.length if self.rule in (None, COUPLED) else f"{self.length} {self.rule}"

    @property
    def lossless(self) -> bool:
        return self.rule is None or LOSSLESS[self.rule]

    @property
    def identical(self) -> bool:
        """Whether its answers must be those of speculation off with the same seed."""
        return self.rule is None or (self.rule == COUPLED and self.branches == 1)


def mark(rule: str | None, lossless: bool) -> str:
    """What a table says beside answers under `rule`; empty where they are the target's."""
    if rule == _MEANINGLESS:
        return "meaningless"
    return "" if lossless else "lossy"


def drafting(text: str) -> Drafting:
    if text in ("0", OFF):
        return Drafting(OFF, {"policy": "off"})
    if text == AUTO:
        return Drafting(AUTO, {"policy": "auto"})
    length = natural(text, _LONGEST)
    if length is None:
        raise UserError(
            f"--lengths has {text!r}; known are 0 (off), auto, and 1 to {_LONGEST}.",
            code="usage",
            param="lengths",
        )
    return Drafting(f"{length}", {"policy": "fixed", "length": length})


def parse_lengths(text: str) -> list[Drafting]:
    """Raises `UserError` for an unknown or repeated length, and where `0` is missing."""
    lengths = [drafting(part.strip()) for part in text.split(",")]
    names = [length.name for length in lengths]
    if len(set(names)) < len(names):
        raise UserError("--lengths names a length twice.", code="usage", param="lengths")
    if OFF not in names:
        raise UserError(
            "--lengths needs 0: everything is compared with speculation off.",
            code="usage",
            param="lengths",
        )
    return lengths


def parse_rules(text: str) -> list[str]:
    """Raises `UserError` for an unknown or repeated rule."""
    rules = [part.strip() for part in text.split(",")]
    for rule in rules:
        if rule not in LOSSLESS:
            raise UserError(
                f"--rules has {rule!r}; known are {', '.join(LOSSLESS)}.",
                code="usage",
                param="rules",
            )
    if len(set(rules)) < len(rules):
        raise UserError("--rules names a rule twice.", code="usage", param="rules")
    return rules


def settings_for(
    lengths: Sequence[Drafting], rules: Sequence[str], branches: int = 1
) -> list[Setting]:
    """Every length under every rule, in this order; off, which verifies nothing, once.

    Raises `UserError` for branches that no request may ask for.
    """
    if not 1 <= branches <= MOST_BRANCHES:
        raise UserError(
            f"--branches must be from 1 to {MOST_BRANCHES}.", code="usage", param="branches"
        )
    settings: list[Setting] = []
    for length in lengths:
        if length.name == OFF:
            settings.append(Setting(OFF, None, 1, length.wire))
            continue
        for rule in rules:
            wire = {**length.wire, "rule": rule, "branches": branches}
            settings.append(Setting(length.name, rule, branches, wire))
    return settings
