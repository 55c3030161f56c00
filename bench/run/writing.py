"""A run's directory: the report as JSON and Markdown, and its plots."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

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
    plots = plots_of(report.cells)
    write_files(path, document(report), markdown(report, list(plots)), plots)


def write_files(path: Path, report: Mapping[str, Any], text: str, plots: Mapping[str, str]) -> None:
    """A report as JSON, its Markdown `text`, its plots by the names of their files."""
    write_json(path / JSON, report)
    try:
        for name, svg in plots.items():
            (path / name).write_text(svg, encoding="utf-8")
        (path / MARKDOWN).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(
            f"cannot write to {path}: {error.strerror}.", code="out_unwritable", param="out"
        ) from None
