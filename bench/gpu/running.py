"""Runs the parts one after another, each in a process of its own, until the time is over.

A part that fails, crashes the driver or hangs is said to have; the others go on.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.gpu.site import Outcome, Part, Site
from bench.report import Promise, Table

LEAST_SECONDS = 5.0
"""What a part needs to begin at all."""

_LAST_LINES = 12


@dataclass(frozen=True, slots=True)
class PartReport:
    """`status` is done, failed (`problem` says how), timed out, or not run."""

    name: str
    meaning: str
    status: str
    seconds: float = 0.0
    problem: str = ""
    figures: Mapping[str, Any] = field(default_factory=dict)
    checks: Sequence[Promise] = ()
    tables: Sequence[Table] = ()
    notes: Sequence[str] = ()

    @property
    def held(self) -> bool:
        """What had no time decides nothing."""
        if self.status == "not run":
            return True
        return self.status == "done" and all(check.held is not False for check in self.checks)


def run_parts(
    parts: Sequence[Part],
    seconds: float,
    command_of: Callable[[Part, Path], Sequence[str]],
    directory: Path,
    clock: Callable[[], float] = time.monotonic,
) -> list[PartReport]:
    """Every part within what is left of `seconds`."""
    end = clock() + seconds
    reports = []
    for part in parts:
        left = end - clock()
        if left < LEAST_SECONDS:
            reports.append(PartReport(part.name, part.meaning, "not run", problem="no time left"))
            continue
        written = directory / f"part-{part.name}.json"
        written.unlink(missing_ok=True)
        report = run_part(part, command_of(part, written), written, min(part.seconds, left))
        print(f"gpu: {part.name} {report.status}, {report.seconds:.0f} s", file=sys.stderr)
        reports.append(report)
    return reports


def run_part(part: Part, command: Sequence[str], written: Path, seconds: float) -> PartReport:
    started = time.monotonic()
    # A group of its own: what it started ends with it.
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    try:
        said, _ = process.communicate(timeout=seconds)
        status = "done" if process.returncode == 0 else "failed"
        problem = "" if status == "done" else _problem(process.returncode, said)
    except subprocess.TimeoutExpired:
        status, problem = "timed out", f"it took more than {seconds:.0f} s"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    taken = time.monotonic() - started
    report = PartReport(part.name, part.meaning, status, taken, problem)
    return report if status != "done" else _read(report, written)


def write_outcome(path: Path, outcome: Outcome) -> None:
    path.write_text(json.dumps(asdict(outcome)), encoding="utf-8")


def _read(report: PartReport, written: Path) -> PartReport:
    try:
        document = json.loads(written.read_bytes())
        return PartReport(
            report.name,
            report.meaning,
            report.status,
            report.seconds,
            "",
            document["figures"],
            [Promise(**each) for each in document["checks"]],
            [Table(**each) for each in document["tables"]],
            document["notes"],
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        problem = f"its report cannot be read: {error}"
        return PartReport(report.name, report.meaning, "failed", report.seconds, problem)


def _problem(status: int, said: str) -> str:
    how = f"signal {-status}" if status < 0 else f"status {status}"
    lines = said.strip().splitlines()[-_LAST_LINES:]
    return f"ended with {how}: " + "\n".join(lines)


def site_of(device: str, directory: Path, *, quick: bool, demo: Path | None) -> Site:
    return Site(device, directory, quick, demo)
