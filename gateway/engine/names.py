"""What requests call drafters: kinds, combinations, and the words for a package's best."""

from __future__ import annotations

from collections.abc import Sequence

from models.errors import UserError
from models.package import DRAFTER_KINDS

AUTO, CASCADE, NGRAM, OFF = "auto", "cascade", "ngram", "off"

PREFERRED = ("eagle3", "mtp", "eagle", "medusa", "draft-model", "self-speculative")
"""Of a package's learned drafters the first of these is the one that `cascade` runs."""

JOIN = "+"


def is_name(name: str) -> bool:
    """Whether some package could have a drafter of this name, or such a combination."""
    if name in (AUTO, CASCADE, OFF):
        return True
    parts = name.split(JOIN)
    return len(set(parts)) == len(parts) and {*parts} <= {NGRAM, *DRAFTER_KINDS}


def drafter_names(kinds: Sequence[str]) -> tuple[str, ...]:
    """What requests may ask of a package with these learned drafters, combinations apart."""
    cascade = (CASCADE,) if _preferred(kinds) else ()
    return (AUTO, *cascade, NGRAM, *kinds, OFF)


def resolve(name: str, kinds: Sequence[str]) -> tuple[str, ...]:
    """The drafters that `name` stands for, in order of preference; none for `off`.

    Raises `UserError` `unknown_drafter` that says what there is.
    """
    preferred = _preferred(kinds)
    if name == OFF:
        return ()
    if name == AUTO or (name == CASCADE and preferred):
        return (NGRAM, *preferred)
    parts = name.split(JOIN)
    if is_name(name) and {*parts} <= {NGRAM, *kinds}:
        return tuple(sorted(parts, key=lambda part: part != NGRAM))
    combined = f"; and combinations such as {NGRAM}{JOIN}{kinds[0]}" if kinds else ""
    raise UserError(
        f"unknown drafter {name[:80]!r}; this package has: {', '.join(drafter_names(kinds))}"
        f"{combined}.",
        code="unknown_drafter",
        param="speculation.drafter",
    )


def _preferred(kinds: Sequence[str]) -> tuple[str, ...]:
    return tuple(kind for kind in PREFERRED if kind in kinds)[:1]
