"""A report as Markdown. Under every table stands what its columns mean."""

from __future__ import annotations

from collections.abc import Sequence

from bench.markdown import table
from bench.run.limits import comparisons
from bench.run.schema import RunCell, RunReport
from bench.run.tables import LAYOUTS, Layout, by_load, load_name, problems, rows_of
from bench.sheets import reasons


def markdown(report: RunReport, plots: Sequence[str]) -> str:
    """`plots` are names of files beside the report."""
    first = report.cells[0]
    parts = [
        f"# {first.target.name}: benchmark of speculation",
        _contract(report, first),
        *_loads(report.cells),
        *_problems(report.cells),
        "## Plots",
        *(f"![{name.removesuffix('.svg')}]({name})" for name in plots),
    ]
    return "\n\n".join(parts) + "\n"


def _contract(report: RunReport, cell: RunCell) -> str:
    target, runtime, workload = cell.target, cell.runtime, cell.workload
    used = ", ".join(f"{name} {version}" for name, version in runtime.versions.items())
    lines = [
        ("command", f"`{report.command}`"),
        ("measured", f"{report.started}, {report.seconds:.0f} s"),
        ("target", f"{target.checkpoint}, revision {target.revision or 'none'}"),
        ("weights", f"{target.weight_type}, K/V {target.kv_type}, {target.architecture}"),
        ("tokenizer", f"`{target.tokenizer[:16]}`"),
        ("package", f"`{target.package[:16]}`"),
        ("drafters", _drafters(report.cells)),
        (
            "runtime",
            f"{runtime.provider}, {runtime.threads} threads, {runtime.slots} slots; {used}",
        ),
        ("hardware", str(runtime.hardware["processor"])),
        (
            "sampling",
            f"top-p {cell.sampling.top_p:g}, seed {cell.sampling.seed}: "
            + cell.sampling.seed_semantics,
        ),
        ("bonus token", cell.speculation.bonus_semantics),
        (
            "workload",
            f"{workload.source}, {workload.repeats} repeats, answers of up to"
            f" {workload.max_tokens} tokens",
        ),
    ]
    return table(("", ""), lines)


def _drafters(cells: Sequence[RunCell]) -> str:
    parts = {part.type: part for cell in cells for part in cell.drafter.parts}
    named = [
        f"{kind} ({part.checkpoint} {part.sha256[:8]})"
        if isinstance(part.checkpoint, str) and isinstance(part.sha256, str)
        else kind
        for kind, part in parts.items()
    ]
    return ", ".join(named) or "none"


def _loads(cells: Sequence[RunCell]) -> list[str]:
    parts: list[str] = []
    for (temperature, concurrency), members in by_load(cells).items():
        parts.append(f"## {load_name(temperature, concurrency).capitalize()}")
        for layout in LAYOUTS:
            parts += [f"### {layout.title}", _filled(layout, members), _definitions(layout)]
        for found in comparisons(members):
            parts.append(found.markdown("###"))
    return parts


def _filled(layout: Layout, cells: Sequence[RunCell]) -> str:
    return table([column.header for column in layout.columns], rows_of(layout, cells))


def _definitions(layout: Layout) -> str:
    return "\n".join(f"- **{column.header}**: {column.definition}" for column in layout.columns)


def _problems(cells: Sequence[RunCell]) -> list[str]:
    found = problems(cells)
    if not found:
        return []
    return ["## What has no figure", table(("setting", "", "why"), found), reasons()]
