"""Parts `cost`, `1b`, `8b` and `weights`: what runs take, by rows and width, and what memory."""

from __future__ import annotations

from typing import Any

from bench.gpu.correct import STRICT
from bench.gpu.hardware import memory_used_mib
from bench.gpu.site import Outcome, Site, least_ms, median_ms
from bench.gpu.tokens import PROMPT, prefill, random_tokens
from bench.report import Promise, Table, milliseconds, none_of, number
from gateway.engine.costs.gemm import CHOICES
from models.capture import total
from models.errors import UserError
from models.package import Package
from models.providers import DeviceOptions
from models.rows import Row
from models.target import Target

WIDTHS = (1, 2, 3, 4, 6, 8, 12, 16)
ROWS = (1, 2, 4)
PASTS = (PROMPT, 1024)


def cost(site: Site) -> Outcome:
    """The small model in fp16: captured and eager, by rows and width."""
    package = site.package("135m", "fp16")
    captured = grid(site, package, DeviceOptions())
    eager = grid(site, package, DeviceOptions(graphs=False), rows=(1,))
    ratio = captured["1x2"] / eager["1x2"]
    strict = strict_cost(site, package)
    figures = {"captured_ms": captured, "eager_ms": eager, "captured_to_eager": ratio, **strict}
    checks = []
    if site.device == "cuda":
        checks.append(Promise("a replay against an eager run", ratio, "<=", 1.0, "x"))
    tables = [_table("T_verify, captured (ms)", captured), _table("T_verify, eager (ms)", eager)]
    return Outcome(figures, checks, tables)


def large_1b(site: Site) -> Outcome:
    return _by_weights(site, "1b", ("int4", "fp16", "int8"))


def large_8b(site: Site) -> Outcome:
    return _by_weights(site, "8b", ("int4",))


def _by_weights(site: Site, name: str, kinds: tuple[str, ...]) -> Outcome:
    """T_verify by weights, rows and width; for few bits with both kinds of products."""
    figures: dict[str, Any] = {"parameters": site.shape(name).parameters}
    tables, checks = [], []
    for kind in kinds:
        package = site.package(name, kind)
        choices = CHOICES if kind != "fp16" else CHOICES[:1]
        for choice in choices:
            before = memory_used_mib()
            try:
                times = grid(site, package, DeviceOptions(gemm=choice))
            except UserError as error:
                figures[f"{kind} {choice}"] = {"failed": error.message}
                checks.append(none_of(f"{kind}, {choice} products: failures", 1, error.message))
                continue
            after = memory_used_mib()
            used = None if before is None or after is None else after - before
            figures[f"{kind} {choice}"] = {"ms": times, "memory_mib": used}
            tables.append(_table(f"{name}, {kind}, {choice} products: T_verify (ms)", times))
        figures[f"{kind} strict"] = strict_cost(site, package)
    return Outcome(figures, checks, tables)


def grid(
    site: Site, package: Package, use: DeviceOptions, rows: tuple[int, ...] = ROWS
) -> dict[str, float]:
    """Milliseconds by `rows x width`, and of one row behind a long text by `1x width @ past`."""
    target = Target(package, site.provider(use))
    context = package.manifest.target.context_length
    found: dict[str, float] = {}
    for count in (each for each in rows if each <= target.most_rows):
        slots = target.make_slots(count, context)
        for past in PASTS if count == 1 else PASTS[:1]:
            if past + max(WIDTHS) > context:
                continue
            for slot in slots:
                prefill(target, slot, random_tokens(target, past, slot.index))
            for width in WIDTHS[:: 3 if site.coarse else 1]:
                packed = [Row(slot, (5,) * width, logits=width) for slot in slots]
                name = f"{count}x{width}" + (f"@{past}" if past != PASTS[0] else "")
                found[name] = least_ms(lambda packed=packed: target.run(packed), site.repeats)  # type: ignore[misc]
    if "1x2" not in found:
        (slot,) = target.make_slots(1, context)
        prefill(target, slot, random_tokens(target, PROMPT))
        row = Row(slot, (5, 5), logits=2)
        found["1x2"] = least_ms(lambda: target.run([row]), site.repeats)
    return found


def strict_cost(site: Site, package: Package) -> dict[str, Any]:
    """Plain decoding in runs of the strict width of all rows, against runs of two tokens."""
    times = {}
    for width in (None, STRICT):
        target = Target(package, site.provider(DeviceOptions(strict_width=width)))
        (slot,) = target.make_slots(1, 256)
        prefill(target, slot, random_tokens(target, PROMPT))
        row = Row(slot, (5,), logits=1)
        times[width] = median_ms(lambda: target.run([row]), site.repeats)  # noqa: B023
    return {
        "plain_ms": times[None],
        "strict_ms": times[STRICT],
        "strict_to_plain": times[STRICT] / times[None],
        "strict_width": STRICT,
        "strict_rows": max(package.row_counts),
    }


def weights(site: Site) -> Outcome:
    """Are the weights there once, and is what is said the same as with a copy for each graph?"""
    package = site.package("135m", "fp16")
    figures: dict[str, Any] = {}
    said = {}
    for share in (False, True):
        before = memory_used_mib()
        target = Target(package, site.provider(DeviceOptions(share_weights=share)))
        (slot,) = target.make_slots(1, 256)
        (result,) = target.run([Row(slot, tuple(random_tokens(target, 24)), logits=24)])
        after = memory_used_mib()
        used = None if before is None or after is None else after - before
        name = "shared" if share else "own"
        figures[name] = {"mib": used, "graphs": total(target.graph_counts).captured}
        if target.weights is not None:
            figures[name]["shared_bytes"] = target.weights.bytes
        said[share] = result.top_values
    same = bool((said[True] == said[False]).all())
    size = package.manifest.files[package.manifest.target.weights].bytes
    figures["file_bytes"] = size
    share_of = figures["shared"]["shared_bytes"] / size
    return Outcome(
        figures,
        [
            Promise("shared weights say the same to the bit", float(same), ">=", 1.0),
            Promise("share of the weights' file that is shared", share_of, ">=", 0.95),
        ],
    )


def _table(title: str, times: dict[str, float]) -> Table:
    plain = times["1x2"]
    rows = [(name, milliseconds(ms), number(ms / plain)) for name, ms in times.items()]
    return Table(title, ("rows x width", "ms", "to 1x2"), rows)
