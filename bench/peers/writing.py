"""A run's directory: the report as JSON and Markdown, and its plots."""

from __future__ import annotations

from pathlib import Path

from bench.peers.markdown import markdown
from bench.peers.plots import plots_of
from bench.peers.schema import PeersReport, document
from bench.report import write_json
from models.errors import UserError

JSON, MARKDOWN = "report.json", "report.md"


def write_report(path: Path, report: PeersReport) -> None:
    """Raises `UserError` where the directory cannot be written to."""
    write_json(path / JSON, document(report))
    plots = plots_of(report)
    try:
        for name, svg in plots.items():
            (path / name).write_text(svg, encoding="utf-8")
        (path / MARKDOWN).write_text(markdown(report, list(plots)), encoding="utf-8")
    except OSError as error:
        raise UserError(
            f"cannot write to {path}: {error.strerror}.", code="out_unwritable", param="out"
        ) from None
