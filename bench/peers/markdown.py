"""A report of peers as Markdown. Under every table stands what its columns mean."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from bench.markdown import table
from bench.peers.schema import PeersReport
from bench.peers.tables import Column, by_category, overall, problems, rows_of, together
from bench.run.schema import ALL
from bench.run.tables import shown
from bench.sheets import reasons


def markdown(report: PeersReport, plots: Sequence[str]) -> str:
    """`plots` are names of files beside the report."""
    parts = [f"# {report.checkpoint}: Outpace and its peers", _head(report)]
    for basis in report.bases:
        columns = overall(basis)
        parts += [f"## All prompts, against {basis}"]
        parts += [table(_headers(columns), rows_of(columns, together(report))), _defined(columns)]
    columns = by_category(report.bases[0])
    rows = [row for row in report.rows if row.category != ALL]
    if rows:
        parts += ["## By category"]
        parts += [table(_headers(columns), rows_of(columns, rows)), _defined(columns)]
    parts += _contestants(report) + _tried(report) + _problems(report)
    parts += ["## Plots", *(f"![{name.removesuffix('.svg')}]({name})" for name in plots)]
    return "\n\n".join(parts) + "\n"


def _head(report: PeersReport) -> str:
    exported = ", ".join(f"{name} {shown(value, 3)}" for name, value in report.exported.items())
    whole = "" if report.whole else "; interrupted"
    lines = [
        ("command", f"`{report.command}`"),
        ("measured", f"{report.started}, {report.seconds:.0f} s{whole}"),
        ("checkpoint", f"{report.checkpoint}, sha256 `{report.sha256[:16]}`"),
        ("hardware", f"{report.hardware['processor']}, {' '.join(report.hardware['flags'])}"),
        ("threads", f"{report.threads} for everyone, one request at a time"),
        (
            "workload",
            f"{report.source}, greedy answers of up to {report.max_tokens} tokens; everyone gets"
            " the same tokens of the prompt and stops at the same end of sequence",
        ),
        (
            "order",
            "everyone answers a prompt before the next begins, in an order that rotates; whoever"
            " waits is stopped (SIGSTOP)",
        ),
        (
            "selection",
            f"each peer's configurations on {report.selection_prompts} prompts, answers of up to"
            f" {report.selection_max_tokens} tokens",
        ),
        ("agreement on the fp32 model's answers, by our exporter", exported),
    ]
    return table(("", ""), lines)


def _contestants(report: PeersReport) -> list[str]:
    header = ("contestant", "settings", "versions", "MiB", "others' use")
    rows = [
        (
            one.name,
            _inline(one.settings),
            ", ".join(f"{name} {version}" for name, version in one.versions.items()),
            shown(one.memory, 0),
            shown(one.waiting_use, 4),
        )
        for one in report.contestants
    ]
    words = [
        "- **MiB**: resident memory of its process behind its last answer",
        "- **others' use**: share of one processor that all who waited used while it answered",
    ]
    return ["## How each was run", table(header, rows), "\n".join(words)]


def _tried(report: PeersReport) -> list[str]:
    if not report.tried:
        return []
    rows = [
        (
            one.configuration,
            shown(one.time_per_token),
            shown(one.agreement, 3),
            "yes" if one.chosen else "",
            _inline(one.settings),
        )
        for one in report.tried
    ]
    header = ("configuration", "ms/token", "agreement", "chosen", "settings")
    words = (
        "- **chosen**: the fastest of its peer, and the fastest that agrees with the fp32 model at"
        " least as well as ours does on these prompts; measured on all prompts above\n"
        "- **ms/token**, **agreement**: as above, on the selection's prompts"
    )
    return ["## Every configuration that was tried", table(header, rows), words]


def _problems(report: PeersReport) -> list[str]:
    found = problems(report)
    if not found:
        return []
    return ["## What has no figure", table(("", "", "why"), found), reasons()]


def _headers(columns: Sequence[Column]) -> list[str]:
    return [column.header for column in columns]


def _defined(columns: Sequence[Column]) -> str:
    return "\n".join(f"- **{column.header}**: {column.definition}" for column in columns)


def _inline(settings: Mapping[str, Any]) -> str:
    return f"`{json.dumps(settings)}`" if settings else ""
