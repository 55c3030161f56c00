"""Fills in the templates of `systemd/`, and knows what it has written again."""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from models.errors import UserError

HEAD = "# Written by outpace install-service; changed by hand it is kept. "
_CONDITION = re.compile(r"@(if|unless) (\w+)@(.*)")
_VALUE = re.compile(r"@(\w+)@")
_PLAIN = re.compile(r"/[\w./+@,=~-]*", re.ASCII)


def template(name: str) -> str:
    """A template by its path in `systemd/`: beside the source, or where it was installed."""
    for root in (Path(__file__).parents[2], Path(sys.prefix) / "share" / "outpace"):
        path = root / "systemd" / name
        if path.is_file():
            return path.read_text(encoding="utf-8")
    raise UserError(
        f"the template systemd/{name} is not installed with Outpace; install it again.",
        code="not_installed",
    )


def render(text: str, values: Mapping[str, str | None]) -> str:
    """With `@name@` replaced. A condition holds where its name has a value, an empty one included.

    A name without a value where it is used is a `KeyError`: the template is wrong.
    """
    return "".join(f"{line}\n" for line in _lines(text, values))


def _lines(text: str, values: Mapping[str, str | None]) -> Iterator[str]:
    for line in text.splitlines():
        condition = _CONDITION.fullmatch(line)
        if condition is not None:
            wanted, name, line = condition.groups()
            if (values.get(name) is not None) != (wanted == "if"):
                continue
        yield _VALUE.sub(lambda match: _value(values, match[1]), line)


def _value(values: Mapping[str, str | None], name: str) -> str:
    value = values[name]
    if value is None:
        raise KeyError(name)
    return value


def signed(text: str) -> str:
    """With a first line that says who wrote it, and a digest of the rest."""
    return f"{HEAD}{_digest(text)}\n{text}"


def is_ours(text: str) -> bool:
    """Whether it is as it was written: nobody has changed it since."""
    head, _, rest = text.partition("\n")
    return head == HEAD + _digest(rest)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def plain(path: Path) -> str:
    """A path as a unit file takes it. Raises `UserError` for what needs escapes there, which differ
    from setting to setting."""
    text = str(path)
    if not _PLAIN.fullmatch(text):
        raise UserError(
            f"the path {text!r} cannot stand in a unit file: letters, digits and / . _ + @ , = ~ -"
            " can. Move it, or link to it from another place.",
            code="invalid_path",
        )
    return text
