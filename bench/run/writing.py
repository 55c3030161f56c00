"""A run's directory: the report as JSON and Markdown, and its plots."""

from __future__ import annotations

from pathlib import Path

from bench.report import write_json
from bench.run.markdown import markdown
from bench.run.plots import plots_of
from bench.run.schema import RunReport, document
from models.errors import UserError

JSON, MARKDOWN = "report.json", "report.md"


def make_directory(path: Path) -> None:
    """An empty directory at `path`. Raises `UserError` where there is something already."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        taken = any(path.iterdir())
    except OSError as error:
        raise UserError(
            f"cannot write to {path}: {error.strerror}.", code="out_unwritable", param="out"
        ) from None
    if taken:
        raise UserError(
            f"{path} is not empty: name a new directory.", code="out_not_empty", param="out"
        )


def write_report(path: Path, report: RunReport) -> None:
    """Raises `UserError` where the directory cannot be written to."""
    write_json(path / JSON, document(report))
    plots = plots_of(report.cells)
    try:
        for name, svg in plots.items():
            (path / name).write_text(svg, encoding="utf-8")
        (path / MARKDOWN).write_text(markdown(report, list(plots)), encoding="utf-8")
    except OSError as error:
        raise UserError(
            f"cannot write to {path}: {error.strerror}.", code="out_unwritable", param="out"
        ) from None
