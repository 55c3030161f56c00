"""What the check found, as JSON and as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from bench.gpu.running import PartReport
from bench.markdown import table
from bench.report import figure

SCHEMA = "outpace/gpu/1"


def as_json(
    reports: Sequence[PartReport], settings: Mapping[str, Any], started: str, seconds: float
) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "started": started,
        "seconds": round(seconds, 1),
        "settings": dict(settings),
        "held": all(report.held for report in reports),
        "parts": [
            {**asdict(report), "held": report.held, "seconds": round(report.seconds, 1)}
            for report in reports
        ],
    }


def as_markdown(
    reports: Sequence[PartReport], settings: Mapping[str, Any], started: str, seconds: float
) -> str:
    played = settings["device"] == "cpu"
    title = "# GPU check" + (", played by the processor" if played else "")
    parts = [title]
    if played:
        parts.append(
            "No GPU was used: the device's name and its memory's were replaced by the processor's,"
            " and the shapes are smaller. Times say nothing about a GPU."
        )
    parts.append(table(("", ""), _facts(reports, settings, started, seconds)))
    parts.append("## Parts")
    parts.append(
        table(
            ("part", "what", "status", "s", "checks"),
            [
                (
                    report.name,
                    report.meaning,
                    report.status,
                    f"{report.seconds:.0f}",
                    _held(report),
                )
                for report in reports
            ],
        )
    )
    parts += [text for report in reports for text in _part(report)]
    return "\n\n".join(parts) + "\n"


def _facts(
    reports: Sequence[PartReport], settings: Mapping[str, Any], started: str, seconds: float
) -> list[tuple[str, str]]:
    facts = [("started", started), ("seconds", f"{seconds:.0f}")]
    facts += [(name, str(value)) for name, value in settings.items()]
    hardware = next((each.figures for each in reports if each.name == "hardware"), {})
    for gpu in hardware.get("gpu") or []:
        facts.append(("GPU", ", ".join(f"{name} {value}" for name, value in gpu.items())))
    machine, versions = hardware.get("machine", {}), hardware.get("versions", {})
    facts += [(name, str(machine[name])) for name in ("system", "processor") if name in machine]
    facts += [(name, str(value)) for name, value in versions.items()]
    if "providers" in hardware:
        facts.append(("providers", ", ".join(hardware["providers"])))
    return facts


def _held(report: PartReport) -> str:
    if not report.checks:
        return ""
    held = sum(check.held is not False for check in report.checks)
    return f"{held} of {len(report.checks)}"


def _part(report: PartReport) -> list[str]:
    shown = [f"## {report.name}", report.meaning]
    if report.problem:
        shown.append(f"**{report.status}**: " + " / ".join(report.problem.splitlines()))
    shown += list(report.notes)
    if report.checks:
        shown.append(
            table(
                ("check", "measured", "wanted", "", ""),
                [
                    (
                        check.name,
                        "-" if check.measured is None else figure(check.measured, check.unit),
                        f"{check.relation} {figure(check.bound, check.unit)}",
                        check.status,
                        check.note,
                    )
                    for check in report.checks
                ],
            )
        )
    for each in report.tables:
        shown += [f"### {each.title}", table(each.header, each.rows)]
    return shown
