"""A grid of drafters, policies, lengths, rules and loads, with the whole acceptance contract.

Drives a gateway of its own over WebSockets and writes a directory: `report.json` (schema in
`schema.json`), `report.md` and plots. It judges no promise: a drafter that failed or is not there
is part of the report.
"""

from __future__ import annotations

import argparse
import asyncio
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from bench.report import Findings, Table
from bench.run import plan as plans
from bench.run.contract import cells_of
from bench.run.driving import drive
from bench.run.limits import comparisons
from bench.run.schema import RunCell, RunReport
from bench.run.tables import LAYOUTS, by_load, load_name, problems, rows_of
from bench.run.writing import JSON, make_directory, write_report
from bench.setup import Setup


def add_arguments(parser: argparse.ArgumentParser) -> None:
    plans.add_arguments(parser)
    parser.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="a new or empty directory"
    )


def run(parsed: argparse.Namespace, setup: Setup) -> Findings:
    plan = plans.plan_of(parsed, setup)
    make_directory(parsed.out)
    started = time.time()
    outcomes, status = asyncio.run(drive(setup, plan))
    report = RunReport(
        started=datetime.fromtimestamp(started, UTC).isoformat(timespec="seconds"),
        seconds=round(time.time() - started, 1),
        command=shlex.join(["python", "-m", "bench", *sys.argv[1:]]),
        cells=tuple(cells_of(setup, plan, outcomes, status)),
    )
    write_report(parsed.out, report)
    return Findings({}, {"report": str(parsed.out / JSON)}, (), _tables(report.cells))


def _tables(cells: Sequence[RunCell]) -> list[Table]:
    tables = [
        Table(
            f"{layout.title}: {load_name(*load)}",
            [column.header for column in layout.columns],
            rows_of(layout, members),
        )
        for load, members in by_load(cells).items()
        for layout in LAYOUTS
    ]
    for load, members in by_load(cells).items():
        for each in comparisons(members):
            shown = each.table()
            tables.append(replace(shown, title=f"{shown.title}: {load_name(*load)}"))
    found = problems(cells)
    return (
        [*tables, Table("What has no figure", ("setting", "", "why"), found)] if found else tables
    )
