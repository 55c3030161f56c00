"""Lists of numbers in command lines: `1,2,4` and `1..8`."""

from __future__ import annotations

from collections.abc import Sequence

from bench.naturals import natural
from models.errors import UserError


def naturals(flag: str, text: str, most: int) -> tuple[int, ...]:
    """The numbers of `--flag text`, in order, each once. Raises `UserError` for anything else."""
    found: list[int] = []
    for part in (part.strip() for part in text.split(",")):
        first, dots, last = part.partition("..")
        begin, end = natural(first, most), natural(last if dots else first, most)
        if begin is None or end is None or begin > end:
            raise usage(flag, text, f"takes 1 to {most}, as in 1,2,4 or 1..{min(most, 8)}")
        found += range(begin, end + 1)
    return tuple(dict.fromkeys(found))


def decimals(flag: str, text: str, least: float, most: float) -> tuple[float, ...]:
    """The same of numbers from `least` to `most`."""
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or not all(least <= value <= most for value in found):
        raise usage(flag, text, f"takes numbers from {least:g} to {most:g}, separated by commas")
    return tuple(dict.fromkeys(found))


def at_least(flag: str, value: float, least: float) -> None:
    """Raises `UserError` for less; for NaN too."""
    if not value >= least:
        raise usage(flag, f"{value:g}", f"must be at least {least:g}")


def one_of(flag: str, names: Sequence[str], known: Sequence[str]) -> None:
    """Raises `UserError` where `names` has one that is not known."""
    for name in names:
        if name not in known:
            raise usage(flag, name, f"knows {', '.join(known)}")


def usage(flag: str, given: str, problem: str) -> UserError:
    return UserError(f"--{flag} {given}: {problem}.", code="usage", param=flag.replace("-", "_"))
