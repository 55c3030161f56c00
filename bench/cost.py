"""Milliseconds of a target run by width and rows, and how far the weights are from fp32."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench.agreement import Agreement, measure_agreement
from bench.overhead import parse_lengths
from bench.report import Findings, Promise, Table, milliseconds, number
from bench.setup import Setup, progress
from bench.texts import Texts
from models.errors import UserError
from models.package import Package, load_package
from models.processor import has_integer_dot_product
from models.providers import select_provider
from models.slots import Slot
from models.target import Row, Target

WIDTHS = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32)
ROWS = (1, 2, 4)

WIDTH_8 = 1.4
"""A run of 8 tokens over a run of 1, w8a8, where bytes are multiplied into 32 bits at once."""

WIDTH_8_WITHOUT_DOT_PRODUCT = 1.7
"""The same where there is only AVX2: it multiplies bytes as 16-bit numbers, at half the rate, so
that a run turns from waiting for memory to computing at fewer tokens."""

AGREEMENT = 0.96
KL = 0.011
_PREFILL = 128


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--past", default="44", metavar="N[,N...]", help="tokens in the K/V; default: 44"
    )
    parser.add_argument(
        "--repeats",
        type=int,
        default=15,
        metavar="N",
        help="runs of each shape; default: 15, with --quick at most 5",
    )
    parser.add_argument(
        "--reference",
        type=Path,
        metavar="DIR",
        help="fp32 package to measure agreement and KL against; default: the figures of export",
    )


def run(parsed: argparse.Namespace, setup: Setup) -> Findings:
    pasts = parse_lengths(parsed.past)
    repeats = min(5, parsed.repeats) if setup.quick else parsed.repeats
    context = max(pasts) + max(WIDTHS)
    if repeats < 1 or context > setup.package.manifest.target.context_length:
        raise UserError(
            f"--repeats must be at least 1, and --past leave {max(WIDTHS)} tokens of context.",
            code="usage",
        )
    agreement = _agreement(setup, parsed.reference)
    costs = _Costs(setup, context).measure(pasts, repeats)
    described = {
        "past": pasts,
        "repeats": repeats,
        "widths": list(WIDTHS),
        "rows": sorted({cost.rows for cost in costs}),
        "reference": None if parsed.reference is None else str(parsed.reference),
    }
    return _findings(setup.package, costs, agreement, described)


@dataclass(frozen=True, slots=True)
class Cost:
    """Milliseconds of a run of `rows` rows of `width` tokens each behind `past` tokens."""

    past: int
    rows: int
    width: int
    median_ms: float
    least_ms: float


class _Costs:
    """Times runs of every shape, one after another, `repeats` times over."""

    def __init__(self, setup: Setup, context: int) -> None:
        package = setup.package
        provider = select_provider("auto", package.manifest.target.device)
        self._target = Target(package, provider, setup.threads)
        self._rows = [rows for rows in ROWS if rows <= self._target.most_rows]
        self._slots: list[Slot] = self._target.make_slots(max(self._rows), context)
        self._ids = _ids(setup, context)

    def measure(self, pasts: Sequence[int], repeats: int) -> list[Cost]:
        costs: list[Cost] = []
        for past in pasts:
            self._fill(past)
            times: dict[tuple[int, int], list[float]] = {}
            for repeat in range(repeats):
                for rows in self._rows:
                    for width in WIDTHS:
                        times.setdefault((rows, width), []).append(self._time(rows, width))
                progress(f"cost: {past} tokens in the K/V, repeat {repeat + 1} of {repeats}")
            costs += [
                Cost(past, rows, width, median(found), min(found))
                for (rows, width), found in times.items()
            ]
        return costs

    def _fill(self, past: int) -> None:
        for slot in self._slots:
            slot.truncate(0)
            while slot.length < past:
                chunk = self._ids[slot.length : min(past, slot.length + _PREFILL)]
                self._target.run([Row(slot, chunk, logits=0)])
                slot.commit(chunk)

    def _time(self, rows: int, width: int) -> float:
        packed = []
        for slot in self._slots[:rows]:
            tokens = self._ids[slot.length : slot.length + width]
            packed.append(Row(slot, tokens, logits=width))
        # A change of shape makes new buffers, once: that is not what a run costs.
        self._target.run(packed)
        started = time.perf_counter()
        self._target.run(packed)
        return (time.perf_counter() - started) * 1e3


def _ids(setup: Setup, count: int) -> tuple[int, ...]:
    """Token ids of the prompts, repeated until there are `count`."""
    texts = Texts(setup.package)
    ids: list[int] = []
    while len(ids) < count:
        for question in setup.questions:
            ids += texts.ids(question.turns[0])
            if len(ids) >= count:
                break
    return tuple(ids[:count])


def _agreement(setup: Setup, reference: Path | None) -> Agreement | None:
    """Measured now against `reference`, else as export measured it; None where nobody did."""
    if reference is not None:
        package = load_package(reference)
        if package.manifest.target.weight_type != "fp32":
            raise UserError(
                f"--reference is {package.manifest.target.weight_type}; it must be fp32.",
                code="usage",
                param="reference",
            )
        return measure_agreement(setup, package)
    quality = setup.package.manifest.quality
    if "agreement" not in quality or "kl_mean" not in quality:
        return None
    return Agreement(
        agreement=quality["agreement"],
        kl_mean=quality["kl_mean"],
        tokens=int(quality.get("tokens", 0)),
        origin="export",
    )


def _findings(
    package: Package, costs: Sequence[Cost], agreement: Agreement | None, described: dict[str, Any]
) -> Findings:
    tables = [_table(costs, past) for past in dict.fromkeys(cost.past for cost in costs)]
    if agreement is not None:
        tables.append(_agreement_table(agreement))
    figures = {
        "costs": [asdict(cost) for cost in costs],
        "agreement": None if agreement is None else asdict(agreement),
    }
    promises = [
        *(_width_promise(package, costs, past) for past in described["past"]),
        *_agreement_promises(package, agreement),
    ]
    return Findings(described, figures, promises, tables)


def _width_promise(package: Package, costs: Sequence[Cost], past: int) -> Promise:
    times = {cost.width: cost.median_ms for cost in costs if (cost.past, cost.rows) == (past, 1)}
    fast = has_integer_dot_product()
    bound = WIDTH_8 if fast else WIDTH_8_WITHOUT_DOT_PRODUCT
    kind = package.manifest.target.weight_type
    note = "" if fast else "bound for processors without an integer dot product"
    return Promise(
        f"width 8 / width 1 at {past} tokens",
        times[8] / times[1],
        "<=",
        bound,
        "x",
        note if kind == "w8a8" else f"promised of w8a8; this package is {kind}",
        applies=kind == "w8a8",
    )


def _agreement_promises(package: Package, agreement: Agreement | None) -> list[Promise]:
    kind = package.manifest.target.weight_type
    applies = kind == "w8a8"
    if not applies:
        note = f"promised of w8a8; this package is {kind}"
    elif agreement is None:
        note = "not in the package; give --reference"
    else:
        note = f"of {agreement.origin}"
    share = None if agreement is None else agreement.agreement
    kl = None if agreement is None else agreement.kl_mean
    return [
        Promise("agreement with fp32", share, ">=", AGREEMENT, "", note, applies),
        Promise("mean KL from fp32", kl, "<=", KL, "", note, applies),
    ]


def _table(costs: Sequence[Cost], past: int) -> Table:
    members = [cost for cost in costs if cost.past == past]
    rows_used = list(dict.fromkeys(cost.rows for cost in members))
    by_shape = {(cost.rows, cost.width): cost for cost in members}
    alone = by_shape[1, 1].median_ms
    rows = []
    for width in WIDTHS:
        cells = [str(width), number(by_shape[1, width].median_ms / alone)]
        for count in rows_used:
            cost = by_shape[count, width]
            cells += [milliseconds(cost.median_ms), milliseconds(cost.least_ms)]
        rows.append(cells)
    header = ["tokens a row", "of width 1"]
    for count in rows_used:
        header += [f"{count} row{'s' if count > 1 else ''}", "least"]
    return Table(f"Milliseconds of a run, {past} tokens in the K/V: median, least", header, rows)


def _agreement_table(agreement: Agreement) -> Table:
    row = (
        agreement.origin,
        str(agreement.tokens or "-"),
        number(agreement.agreement, 4),
        number(agreement.kl_mean, 4),
    )
    return Table("Against fp32", ("measured by", "tokens", "agreement", "mean KL"), [row])
