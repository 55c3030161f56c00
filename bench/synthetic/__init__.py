"""Speed against imposed acceptance: measured, by the formula, and by the gateway's cost model.

Drafts of every length are accepted with a given probability (rule `synthetic`; the text means
nothing), on any target shape. Writes a directory: `report.json`, `report.md` and heat maps.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from bench.head import facts, head_of
from bench.keeping import run_to_the_end
from bench.report import Findings, Table
from bench.run.writing import JSON, make_directory, write_files
from bench.setup import Setup
from bench.sheets import document as markdown
from bench.sheets import pages
from bench.synthetic import plan as plans
from bench.synthetic.cells import cells_of
from bench.synthetic.driving import Kept, drive
from bench.synthetic.plan import Plan
from bench.synthetic.schema import Report, document
from bench.synthetic.shapes import DEMO
from bench.synthetic.shapes import package_of as package_of_shape
from bench.synthetic.tables import plots_of, problems, sheets_of
from models.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    plans.add_arguments(parser)
    parser.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="a new or empty directory"
    )


def package_of(parsed: argparse.Namespace) -> Path | None:
    """The package that `--shape` or `--package` means, if one is given."""
    if parsed.shape is None:
        given: Path | None = parsed.package
        return given
    if parsed.package is not None:
        raise UserError(
            "--shape and --package both name the target: leave one out.",
            code="usage",
            param="shape",
        )
    return package_of_shape(parsed.shape)


def run(parsed: argparse.Namespace, setup: Setup) -> Findings:
    """Raises `KeyboardInterrupt` behind the report where it was interrupted."""
    plan = plans.plan_of(parsed, setup)
    make_directory(parsed.out)
    started, kept = time.time(), Kept()
    whole = run_to_the_end(drive(setup, plan, kept))
    if kept.status is None:
        raise KeyboardInterrupt
    shape = parsed.shape or setup.package.manifest.name
    report = Report(
        head=head_of(setup, kept.status, started, whole),
        shape=setup.package.manifest.name if shape == DEMO else shape,
        drafter=plan.drafter,
        rounds=plan.rounds,
        repeats=plan.repeats,
        seed=plan.seed,
        cells=cells_of(plan, kept),
    )
    tables = _write(parsed.out, report)
    if not whole:
        raise KeyboardInterrupt
    return Findings(_described(plan), {"report": str(parsed.out / JSON)}, (), tables)


def _write(out: Path, report: Report) -> list[Table]:
    sheets, plots = sheets_of(report), plots_of(report)
    parts = pages(f"{report.shape}: speed against imposed acceptance", _facts(report), sheets)
    write_files(out, document(report), markdown(parts, list(plots)), plots)
    found = problems(report)
    without = [Table("What has no figure", ("point", "", "why"), found)] if found else []
    return [*(sheet.table() for sheet in sheets), *without]


def _facts(report: Report) -> list[tuple[str, str]]:
    return [
        *facts(report.head),
        ("drafter", report.drafter),
        (
            "workload",
            f"answers of about {report.rounds} rounds, {report.repeats} repeats, seed"
            f" {report.seed}; a single token is all that the target may say",
        ),
    ]


def _described(plan: Plan) -> dict[str, object]:
    return {
        "alphas": list(plan.alphas),
        "lengths": list(plan.lengths),
        "concurrency": list(plan.concurrency),
        "drafter": plan.drafter,
        "rounds": plan.rounds,
        "repeats": plan.repeats,
        "seed": plan.seed,
    }
