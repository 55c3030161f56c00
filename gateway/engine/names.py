"""What requests call drafters: kinds, combinations, and the words for a package's best."""

from __future__ import annotations

from collections.abc import Sequence

from models.errors import UserError
from models.package import DRAFTER_KINDS

AUTO, CASCADE, NGRAM, PREDICTION, OFF = "auto", "cascade", "ngram", "prediction", "off"

PREFERRED = ("eagle3", "mtp", "eagle", "medusa", "draft-model", "self-speculative")
"""Of a package's learned drafters the first of these is the one that `cascade` runs."""

JOIN = "+"


def is_name(name: str) -> bool:
    """Whether some package could have a drafter of this name, or such a combination."""
    if name in (AUTO, CASCADE, OFF):
        return True
    parts = name.split(JOIN)
    return len(set(parts)) == len(parts) and {*parts} <= {NGRAM, PREDICTION, *DRAFTER_KINDS}


def drafter_names(kinds: Sequence[str]) -> tuple[str, ...]:
    """What requests may ask of a package with these learned drafters, combinations apart."""
    cascade = (CASCADE,) if _preferred(kinds) else ()
    return (AUTO, *cascade, NGRAM, PREDICTION, *kinds, OFF)


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
    if is_name(name) and {*parts} <= {NGRAM, PREDICTION, *kinds}:
        return tuple(sorted(parts, key=_place))
    combined = f"; and combinations such as {NGRAM}{JOIN}{kinds[0]}" if kinds else ""
    raise UserError(
        f"unknown drafter {name[:80]!r}; this package has: {', '.join(drafter_names(kinds))}"
        f"{combined}.",
        code="unknown_drafter",
        param="speculation.drafter",
    )


def predicting(names: tuple[str, ...], *, predicted: bool) -> tuple[str, ...]:
    """Those of `names` that draft: a prediction, where there is one, beside whichever others do."""
    others = tuple(name for name in names if name != PREDICTION)
    return (PREDICTION, *others) if predicted and names else others


def _place(name: str) -> int:
    """What is free comes first, and of that what was said of this very answer."""
    free = (PREDICTION, NGRAM)
    return free.index(name) if name in free else len(free)


def _preferred(kinds: Sequence[str]) -> tuple[str, ...]:
    return tuple(kind for kind in PREFERRED if kind in kinds)[:1]
