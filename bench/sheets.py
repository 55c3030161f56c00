"""Tables whose columns say what they mean: under them in Markdown, not on a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.markdown import table
from bench.report import Table
from bench.run.schema import REASONS


@dataclass(frozen=True, slots=True)
class Sheet:
    """`columns` are headers with their definitions; a row has a text for each."""

    title: str
    columns: Mapping[str, str]
    rows: Sequence[Sequence[str]]

    def table(self) -> Table:
        return Table(self.title, tuple(self.columns), self.rows)

    def markdown(self, level: str = "##") -> str:
        defined = "\n".join(f"- **{header}**: {text}" for header, text in self.columns.items())
        return "\n\n".join(
            [f"{level} {self.title}", table(tuple(self.columns), self.rows), defined]
        )


def pages(title: str, facts: Sequence[tuple[str, str]], sheets: Sequence[Sheet]) -> list[str]:
    """A report's parts: what was measured on what, the tables, what stands for no figure."""
    return [
        f"# {title}",
        table(("", ""), facts),
        *(sheet.markdown() for sheet in sheets),
        reasons(),
    ]


def document(parts: Sequence[str], plots: Sequence[str]) -> str:
    """The Markdown of `parts`, and of plots that lie beside it."""
    shown = [f"![{name.removesuffix('.svg')}]({name})" for name in plots]
    return "\n\n".join([*parts, "## Plots", *shown]) + "\n"


def reasons() -> str:
    """What each word means that stands for no figure."""
    return "\n".join(
        f"- **{word.replace('_', ' ')}**: {meaning}" for word, meaning in REASONS.items()
    )
