"""Wrong usage of a command line, said in one sentence: what is wrong, what may have been meant, and
where help is."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import Any, NoReturn

from models.nearest import meant, unrecognized

USAGE = 2
"""The exit status of wrong usage, as argparse and most commands have it."""

_CHOICE = re.compile(r"argument (\S+): invalid choice: '(.*)' \(choose from (.*)\)", re.DOTALL)


class Parser(argparse.ArgumentParser):
    """Its commands' parsers are of the same kind, and each sets the default `parser` to itself."""

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> argparse.Namespace:
        """What argparse makes of arguments that it does not know names the whole program's flags;
        those of the command that was given are the ones that may have been meant."""
        parsed, unknown = self.parse_known_args(args, namespace)
        if unknown:
            asked: Parser = getattr(parsed, "parser", self)
            asked.error(unrecognized(unknown, asked.format_usage()))
        return parsed

    def error(self, message: str) -> NoReturn:
        """End with `USAGE`. The usage as a whole would hide the sentence."""
        self.exit(USAGE, f"{self.prog}: {_sentence(message)} Help: {self.prog} --help\n")


def add_command(
    commands: argparse._SubParsersAction[Parser], name: str, summary: str, **defaults: Any
) -> Parser:
    """A command that is told by its `summary`, with `defaults` of what is parsed."""
    added = commands.add_parser(name, help=summary, description=summary, allow_abbrev=False)
    added.set_defaults(parser=added, **defaults)
    return added


def _sentence(message: str) -> str:
    choice = _CHOICE.fullmatch(message)
    if choice is None:
        return message if message.endswith((".", "?")) else f"{message}."
    where, given, listed = choice.groups()
    known = [name.strip(" '") for name in listed.split(",")]
    what = "is no" if where.isupper() else f"is no value of {where}:"
    end = f" {where.lower()}." if where.isupper() else f" one of {', '.join(known)} is."
    return f"{given!r} {what}{end}{meant(given, known)}"
