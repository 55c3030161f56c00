"""Findings of a suite: figures, promises, the JSON document and the printed report."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from bench.machine import describe_machine, describe_package, versions
from bench.setup import Setup
from models.errors import UserError

SCHEMA = 1
"""Version of the JSON document. Raised when a reader of the old one would misread it."""

Relation = Literal["<=", ">="]


@dataclass(frozen=True, slots=True)
class Promise:
    """`measured` (None: it could not be) must stand in `relation` to `bound`.

    `note` says why nothing was measured, or what the figure is. A promise that does not apply
    (`applies` False), or of which too little could be measured to judge it, is neither held nor
    broken; one that should have been measured and was not is missing.
    """

    name: str
    measured: float | None
    relation: Relation
    bound: float
    unit: str = ""
    note: str = ""
    applies: bool = True

    @property
    def held(self) -> bool | None:
        """None where the promise does not apply; what was not measured is not held."""
        if not self.applies:
            return None
        if self.measured is None:
            return False
        return self.measured <= self.bound if self.relation == "<=" else self.measured >= self.bound

    @property
    def status(self) -> str:
        if not self.applies:
            return "not measured" if self.measured is None else "not applicable"
        if self.measured is None:
            return "missing"
        return "held" if self.held else "BROKEN"


def unjudged(promise: Promise, why: str) -> Promise:
    """`promise`, of which too little was measured to say whether it holds."""
    return dataclasses.replace(promise, measured=None, note=why, applies=False)


def none_of(name: str, count: int, note: str = "") -> Promise:
    """Promises that something never happened."""
    return Promise(name, float(count), "<=", 0.0, note=note)


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text under a header; all but the first column are aligned to the right."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]

    def render(self) -> str:
        head = [list(self.header)] if any(self.header) else []
        cells = [*head, *(list(row) for row in self.rows)]
        widths = [max(len(row[column]) for row in cells) for column in range(len(self.header))]
        lines = [
            "  ".join(
                cell.ljust(width) if column == 0 else cell.rjust(width)
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in cells
        ]
        return "\n".join([self.title, *("  " + line for line in lines)])


@dataclass(frozen=True, slots=True)
class Findings:
    """What a suite measured. `figures` is plain JSON data; `tables` show its main part."""

    settings: Mapping[str, Any]
    figures: Mapping[str, Any]
    promises: Sequence[Promise]
    tables: Sequence[Table] = field(default_factory=tuple)

    @property
    def held(self) -> bool:
        return all(promise.held is not False for promise in self.promises)


def document(
    suite: str, setup: Setup, findings: Findings, started: float, ended: float
) -> dict[str, Any]:
    """The JSON document of one run of a suite."""
    return {
        "schema": SCHEMA,
        "suite": suite,
        "started": datetime.fromtimestamp(started, UTC).isoformat(timespec="seconds"),
        "seconds": round(ended - started, 1),
        "versions": versions(),
        "machine": describe_machine(setup.threads),
        "package": describe_package(setup.package),
        "prompts": {
            "source": setup.source,
            "count": len(setup.questions),
            "categories": dict(Counter(question.category for question in setup.questions)),
        },
        "settings": {"quick": setup.quick, **findings.settings},
        "figures": dict(findings.figures),
        "promises": [
            {**dataclasses.asdict(promise), "held": promise.held, "status": promise.status}
            for promise in findings.promises
        ],
        "held": findings.held,
    }


def write_json(path: Path, report: Mapping[str, Any]) -> None:
    try:
        path.write_text(json.dumps(report, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise UserError(
            f"cannot write {path}: {error.strerror}.", code="json_unwritable", param="json"
        ) from None


def render(report: Mapping[str, Any], findings: Findings) -> str:
    """The report as text: what ran on what, then tables, then promises."""
    package, machine, used = report["package"], report["machine"], report["versions"]
    head = [
        f"{report['suite']}: {package['name']} ({package['weight_type']},"
        f" {package['digest'][:12]}), {report['seconds']:.0f} s",
        f"{machine['processor']}, {machine['threads']} threads,"
        f" integer dot product: {'yes' if machine['integer_dot_product'] else 'no'};"
        f" onnxruntime {used['onnxruntime']}, outpace {used['outpace']}",
    ]
    parts = ["\n".join(head), *(table.render() for table in findings.tables)]
    if findings.promises:
        parts.append(_promises(findings.promises).render())
    return "\n\n".join(parts)


def _promises(promises: Sequence[Promise]) -> Table:
    rows = [
        (
            promise.name,
            "-" if promise.measured is None else figure(promise.measured, promise.unit),
            f"{promise.relation} {figure(promise.bound, promise.unit)}",
            promise.status,
            promise.note,
        )
        for promise in promises
    ]
    return Table("Promises", ("", "measured", "promised", "", ""), rows)


def figure(value: float, unit: str = "") -> str:
    """Four significant places at most, whole numbers whole."""
    text = f"{value:.0f}" if value == int(value) or abs(value) >= 1000 else f"{value:.3g}"
    if 10 <= abs(value) < 1000 and value != int(value):
        text = f"{value:.1f}"
    return f"{text} {unit}" if unit else text


def milliseconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def number(value: float | None, places: int = 2) -> str:
    return "-" if value is None else f"{value:.{places}f}"
