"""A run's directory: the report as JSON and Markdown, and its plots."""

from __future__ import annotations

from pathlib import Path

from bench.peers.markdown import markdown
from bench.peers.plots import plots_of
from bench.peers.schema import PeersReport, document
from bench.run.writing import write_files


def write_report(path: Path, report: PeersReport) -> None:
    """Raises `UserError` where the directory cannot be written to."""
    plots = plots_of(report)
    write_files(path, document(report), markdown(report, list(plots)), plots)
