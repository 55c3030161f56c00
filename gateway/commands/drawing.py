"""What rich draws, shown on a terminal as wide as that is, and in a pipe as wide as it is."""

from __future__ import annotations

import os
import sys

from rich.console import Console, RenderableType

ANY_WIDTH = 100_000


def output_console() -> Console:
    """Of stdout. In a file or a pipe nothing is wrapped or cut unless COLUMNS says so."""
    if sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdecimal():
        return Console()
    return Console(width=ANY_WIDTH)


def show(drawn: RenderableType, console: Console) -> None:
    """Once. In a file or a pipe no line ends in the blanks that fill a table's last column."""
    if console.is_terminal:
        console.print(drawn)
        return
    with console.capture() as captured:
        console.print(drawn)
    console.file.writelines(f"{line.rstrip()}\n" for line in captured.get().rstrip().split("\n"))
