"""What somebody may have meant by a name that is not known."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence

FLAG = re.compile(r"(?<=[\[ ])--[a-z-]+")


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most like it; None where none is like it."""
    return next(iter(difflib.get_close_matches(name, list(known), n=1)), None)


def meant(name: str, known: Iterable[str]) -> str:
    """` Did you mean ...?`, or nothing: to be put behind a sentence."""
    near = nearest(name, known)
    return "" if near is None else f" Did you mean {near}?"


def unrecognized(arguments: Sequence[str], usage: str) -> str:
    """What to say of arguments that a command does not have; `usage` names the flags it has."""
    name = arguments[0].partition("=")[0]
    if not name.startswith("-"):
        return f"the argument {arguments[0]!r} is not known here."
    # Without the dashes, which all have in common.
    near = nearest(name.lstrip("-"), (flag[2:] for flag in FLAG.findall(usage)))
    return f"there is no flag {name}." + ("" if near is None else f" Did you mean --{near}?")
