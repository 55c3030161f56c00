"""The same prompts and checkpoint through other engines, interleaved with ours.

Each peer has a virtual environment of its own, made by the first run, and the fp32 model says how
far everyone's answers are its own. Writes a directory: `report.json`, `report.md` and plots. It
judges no promise; a peer that cannot take part is in the report with the reason.
"""

from __future__ import annotations

import argparse
import dataclasses
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from bench.keeping import run_to_the_end
from bench.machine import describe_machine
from bench.peers import plan as plans
from bench.peers.checkpoint import write_forms
from bench.peers.figures import MS, SHARE, Field, contestant_of
from bench.peers.running import Outcome, Run
from bench.peers.schema import PeersReport, TriedRow
from bench.peers.selection import Tried
from bench.peers.tables import overall, problems, rows_of, together
from bench.peers.writing import write_report
from bench.report import Findings, Table
from bench.run.schema import Absent, Metric, Quantity
from bench.run.writing import JSON, make_directory
from bench.setup import Setup
from models.errors import UserError
from models.package import load_package

_UNJUDGED = Absent("missing", "the fp32 model did not judge it")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    plans.add_arguments(parser)


def run(parsed: argparse.Namespace, setup: Setup) -> Findings:
    """Raises `KeyboardInterrupt` behind the report where it was interrupted."""
    plan = plans.plan_of(parsed, setup)
    setup = dataclasses.replace(setup, threads=plan.threads)
    setups = [setup]
    if parsed.also_package is not None:
        other = load_package(parsed.also_package)
        setups.append(dataclasses.replace(setup, package=other))
    _check(setups)
    make_directory(parsed.out)
    started = time.time()
    forms = write_forms(setup.package, plan.checkpoint, plan.draft)
    measuring = Run(setups, plan, forms)
    whole = run_to_the_end(measuring.measure())
    if measuring.outcome is None:
        raise KeyboardInterrupt
    report = _report(setups, plan, measuring.outcome, started, whole)
    write_report(parsed.out, report)
    if not whole:
        raise KeyboardInterrupt
    return Findings({}, {"report": str(parsed.out / JSON)}, (), _tables(report))


def _check(setups: Sequence[Setup]) -> None:
    targets = [setup.package.manifest.target for setup in setups]
    if len({target.sha256 for target in targets}) > 1:
        raise UserError(
            "--also-package was made of another checkpoint.",
            code="checkpoint_mismatch",
            param="also_package",
        )
    if len({target.weight_type for target in targets}) < len(targets):
        raise UserError(
            "--also-package has the same type of weights.", code="usage", param="also_package"
        )
    if setups[0].package.manifest.chat_template is None:
        raise UserError(
            "the package has no chat template: peers could not be given the same prompts.",
            code="template_missing",
            param="package",
        )


def _report(
    setups: Sequence[Setup], plan: plans.Plan, outcome: Outcome, started: float, whole: bool
) -> PeersReport:
    setup = setups[0]
    target = setup.package.manifest.target
    bases = outcome.ours[: len(setups)]
    return PeersReport(
        started=datetime.fromtimestamp(started, UTC).isoformat(timespec="seconds"),
        seconds=round(time.time() - started, 1),
        command=shlex.join(["python", "-m", "bench", *sys.argv[1:]]),
        whole=whole,
        checkpoint=target.checkpoint,
        sha256=target.sha256,
        hardware=describe_machine(plan.threads),
        threads=plan.threads,
        source=setup.source,
        max_tokens=plan.max_tokens,
        selection_prompts=plan.selection_prompts,
        selection_max_tokens=plan.selection_max_tokens,
        exported={
            one.package.manifest.target.weight_type: _exported(one.package.manifest.quality)
            for one in setups
        },
        bases=bases,
        contestants=tuple(contestant_of(one, one.name in outcome.ours) for one in outcome.records),
        rows=tuple(Field(outcome.records, outcome.agreements, bases).rows()),
        tried=tuple(_tried(one, one.configuration.name in outcome.chosen) for one in outcome.tried),
    )


def _exported(quality: Mapping[str, float]) -> Metric:
    if "agreement" not in quality:
        return Absent("missing", "the package does not say")
    return Quantity(quality["agreement"], SHARE)


def _tried(one: Tried, chosen: bool) -> TriedRow:
    absent = one.record.absent or _UNJUDGED
    return TriedRow(
        configuration=one.configuration.name,
        settings=one.configuration.settings,
        time_per_token=absent if one.ms is None else Quantity(one.ms, MS),
        agreement=absent if one.agreement is None else Quantity(one.agreement, SHARE),
        chosen=chosen,
    )


def _tables(report: PeersReport) -> list[Table]:
    tables = []
    for basis in report.bases:
        columns = overall(basis)
        headers = [column.header for column in columns]
        tables.append(Table(f"Against {basis}", headers, rows_of(columns, together(report))))
    found = problems(report)
    return [*tables, Table("What has no figure", ("", "", "why"), found)] if found else tables
