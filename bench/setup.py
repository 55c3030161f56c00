"""What every suite runs on."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from bench.prompts import Question
from models.package import Package


@dataclass(frozen=True, slots=True)
class Setup:
    """The package, the prompts and where they are from, how much of the machine to use.

    `quick` asks for fewer repeats.
    """

    package: Package
    questions: Sequence[Question]
    source: str = "built-in"
    threads: int | None = None
    quick: bool = False


def progress(line: str) -> None:
    """A line for whoever waits; figures go to stdout, at the end."""
    print(line, file=sys.stderr, flush=True)
