"""Is the GPU used right, and what does it cost? On a bare machine, within minutes.

Builds packages of random weights there, without torch, and measures in parts, each in a process of
its own. `--device cpu` has the processor play the GPU: all but the device's name is exercised.
`--pack DIR` writes what a machine without a network needs.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from bench.gpu.packages import package_of as package_in
from bench.gpu.packing import PLATFORMS, pack
from bench.gpu.parts import BY_NAME, PARTS
from bench.gpu.report import as_json, as_markdown
from bench.gpu.running import PartReport, run_parts, site_of, write_outcome
from bench.gpu.shapes import SHAPES
from bench.gpu.site import Part
from bench.report import Findings, Promise, Table
from bench.setup import Setup
from models.errors import UserError

SECONDS = 480.0
JSON, MARKDOWN = "report.json", "report.md"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--device", choices=("cuda", "cpu"), default="cuda", help="default: cuda; cpu plays it"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("gpu-check"), metavar="DIR", help="default: gpu-check"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=SECONDS,
        metavar="S",
        help=f"no part begins after so long; default: {SECONDS:.0f}",
    )
    parser.add_argument(
        "--parts", metavar="NAME[,NAME...]", help=f"of {', '.join(BY_NAME)}; default: all"
    )
    parser.add_argument(
        "--demo", type=Path, metavar="DIR", help="a real model's package, exported for cuda"
    )
    parser.add_argument("--pack", type=Path, metavar="DIR", help="write what has to be carried")
    parser.add_argument(
        "--pack-python", default="3.12", metavar="X.Y", help="of the machine; default: 3.12"
    )
    parser.add_argument(
        "--pack-also",
        default="",
        metavar="NAME[,NAME...]",
        help="further distributions, as nvidia-cudnn-cu13",
    )
    parser.add_argument("--run-part", metavar="NAME", help=argparse.SUPPRESS)
    parser.add_argument("--run-to", type=Path, metavar="FILE", help=argparse.SUPPRESS)


def package_of(parsed: argparse.Namespace) -> Path:
    """Every suite has a package: this one makes its own."""
    if parsed.package is not None:
        raise UserError("bench gpu builds its own packages: leave out --package.", code="usage")
    tiny = SHAPES["tiny"]
    return package_in(Path(parsed.out) / "packages", tiny, "fp16").path


def run(parsed: argparse.Namespace, setup: Setup) -> Findings:
    if parsed.pack is not None:
        return _pack(parsed)
    site = site_of(parsed.device, parsed.out, quick=setup.quick, demo=parsed.demo)
    if parsed.run_part is not None:
        write_outcome(parsed.run_to, BY_NAME[parsed.run_part].run(site))
        return Findings({}, {}, [])
    settings = {
        "device": parsed.device,
        "quick": setup.quick,
        "demo": None if parsed.demo is None else str(parsed.demo),
        "budget_seconds": parsed.seconds,
    }
    started, began = datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic()
    reports = run_parts(
        chosen(parsed.parts), parsed.seconds, partial(command_of, parsed), Path(parsed.out)
    )
    taken = time.monotonic() - began
    document = as_json(reports, settings, started, taken)
    (parsed.out / JSON).write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    text = as_markdown(reports, settings, started, taken)
    (parsed.out / MARKDOWN).write_text(text, encoding="utf-8")
    print(f"gpu: wrote {parsed.out / MARKDOWN}", file=sys.stderr)
    return _findings(reports, settings)


def chosen(names: str | None) -> list[Part]:
    """Raises `UserError` for a part that there is not."""
    if names is None:
        return list(PARTS)
    wanted = [name.strip() for name in names.split(",")]
    unknown = [name for name in wanted if name not in BY_NAME]
    if unknown:
        raise UserError(
            f"--parts: there is no part {unknown[0]!r}; there are {', '.join(BY_NAME)}.",
            code="usage",
        )
    return [part for part in PARTS if part.name in wanted]


def command_of(parsed: argparse.Namespace, part: Part, written: Path) -> list[str]:
    """The command line of a part's own process."""
    command = [sys.executable, "-m", "bench", "gpu", "--device", parsed.device]
    command += ["--out", str(parsed.out), "--run-part", part.name, "--run-to", str(written)]
    command += ["--quick"] if parsed.quick else []
    return command + (["--demo", str(parsed.demo)] if parsed.demo is not None else [])


def _pack(parsed: argparse.Namespace) -> Findings:
    also = [name for name in parsed.pack_also.split(",") if name]
    packed = pack(parsed.pack, parsed.pack_python, also)
    rows = [(each.name, f"{each.bytes / 2**20:.1f}", str(len(each.parts))) for each in packed]
    total = sum(each.bytes for each in packed)
    table = Table(f"Packed into {parsed.pack}", ("file", "MiB", "parts"), rows)
    settings = {"python": parsed.pack_python, "platform": PLATFORMS[0]}
    return Findings(settings, {"bytes": total}, [], [table])


def _findings(reports: list[PartReport], settings: dict[str, object]) -> Findings:
    promises = [
        replace(check, name=f"{report.name}: {check.name}")
        for report in reports
        for check in report.checks
    ]
    promises += [
        Promise(f"{report.name}: ends well", 0.0, ">=", 1.0, note=report.problem[:200])
        for report in reports
        if report.status in ("failed", "timed out")
    ]
    tables = [table for report in reports for table in report.tables]
    figures = {report.name: dict(report.figures) for report in reports}
    return Findings(settings, figures, promises, tables)
