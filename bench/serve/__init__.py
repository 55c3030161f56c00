"""Goodput, throughput and times under load, by policy: closed loop, open loop, changing load.

Drives a gateway of its own over WebSockets and writes a directory: `report.json`, `report.md` and
plots. It judges no promise: what is refused or fails under load is part of the report.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from bench.head import facts, head_of
from bench.keeping import run_to_the_end
from bench.report import Findings, Table
from bench.run.schema import Absent
from bench.run.writing import JSON, make_directory, write_files
from bench.serve import plan as plans
from bench.serve.changes import phase_cells
from bench.serve.driving import Kept, drive
from bench.serve.figures import INTERRUPTED, cell_of
from bench.serve.plan import Plan, Targets
from bench.serve.plots import plots_of
from bench.serve.schema import LoadCell, PhaseCell, ServeReport, document
from bench.serve.tables import problems, sheets_of
from bench.setup import Setup
from bench.sheets import document as markdown
from bench.sheets import pages


def add_arguments(parser: argparse.ArgumentParser) -> None:
    plans.add_arguments(parser)
    parser.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="a new or empty directory"
    )


def run(parsed: argparse.Namespace, setup: Setup) -> Findings:
    """Raises `KeyboardInterrupt` behind the report where it was interrupted."""
    plan = plans.plan_of(parsed, setup)
    make_directory(parsed.out)
    started, kept = time.time(), Kept()
    whole = run_to_the_end(drive(setup, plan, kept))
    if kept.status is None:
        raise KeyboardInterrupt
    report = ServeReport(
        head=head_of(setup, kept.status, started, whole),
        source=setup.source,
        prompts=len(setup.questions),
        max_tokens=plan.max_tokens,
        repeats=plan.repeats,
        temperature=plan.sampling.temperature,
        seed=plan.seed,
        queue=plan.queue,
        targets=kept.targets or INTERRUPTED,
        loads=tuple(_loads(plan, kept)),
        phases=tuple(_phases(plan, kept)),
    )
    tables = _write(parsed.out, plan, report)
    if not whole:
        raise KeyboardInterrupt
    return Findings(_described(plan), {"report": str(parsed.out / JSON)}, (), tables)


def _loads(plan: Plan, kept: Kept) -> list[LoadCell]:
    # Without targets there is no window either.
    targets = kept.targets or Targets(0.0, 0.0)
    cells: list[LoadCell] = []
    for load in plan.loads:
        plain = kept.windows.get((load, plan.policies[0]), [])
        for policy in plan.policies:
            own = plain if policy is plan.policies[0] else kept.windows.get((load, policy), [])
            absent = kept.absent.get(policy)
            cells.append(cell_of(load, policy, own, plain, targets, plan.seed, absent))
    return cells


def _phases(plan: Plan, kept: Kept) -> list[PhaseCell]:
    plain = kept.phases.get(plan.policies[0], [])
    cells: list[PhaseCell] = []
    for policy in plan.policies:
        own = plain if policy is plan.policies[0] else kept.phases.get(policy, [])
        cells += phase_cells(plan, policy, own, plain, kept.absent.get(policy))
    return sorted(cells, key=lambda cell: cell.phase)


def _write(out: Path, plan: Plan, report: ServeReport) -> list[Table]:
    sheets, plots = sheets_of(report), plots_of(report, plan)
    parts = pages(f"{report.head.target.name}: under load", _facts(report), sheets)
    write_files(out, document(report), markdown(parts, list(plots)), plots)
    found = problems(report)
    without = [Table("What has no figure", ("policy", "", "why"), found)] if found else []
    return [*(sheet.table() for sheet in sheets), *without]


def _facts(report: ServeReport) -> list[tuple[str, str]]:
    targets = report.targets
    aims = (
        targets.why
        if isinstance(targets, Absent)
        else f"TTFT {targets.ttft_ms:.0f} ms, TPOT {targets.tpot_ms:.1f} ms"
    )
    return [
        *facts(report.head),
        ("queue", f"{report.queue} requests may wait"),
        (
            "workload",
            f"{report.source}, {report.prompts} prompts, answers of up to {report.max_tokens}"
            f" tokens, temperature {report.temperature:g}, {report.repeats} windows,"
            f" seed {report.seed}",
        ),
        ("targets", aims),
    ]


def _described(plan: Plan) -> dict[str, object]:
    return {
        "policies": [policy.label for policy in plan.policies],
        "loads": [load.label for load in plan.loads],
        "phases": list(plan.phases),
        "repeats": plan.repeats,
        "max_tokens": plan.max_tokens,
        "slots": plan.slots,
        "seed": plan.seed,
    }
