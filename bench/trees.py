"""The tree part of exactness: how often trees leave the reference, and by how little.

A tree verifies several continuations in one row, and masks those that are not ancestors. The mask
changes the order in which attention sums, so that logits differ in their last bits, and an answer
may go another way where two tokens were as good as equal. Anything else is a defect.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bench.comparison import Case, Comparison
from bench.ledger import Ledger, Mismatch
from bench.report import Promise, Table, figure, none_of, number
from bench.variants import BESIDE_TREES, TREES

_INTEGER, _HALF, _SINGLE = 1.0, 0.1, 1e-3

NEAR_TIE = {"w8a8": _INTEGER, "int8": _INTEGER, "int4": _INTEGER, "fp16": _HALF, "fp32": _SINGLE}
"""By weight type, the most that two logits may come closer through the order of sums alone.

Measured of one logit: 3e-5 in fp32, and 0.5 where activations are rounded to integers, since a
last bit decides which way a value is rounded. Two move towards one another by twice that; fp32 has
a margin beyond it for long contexts. fp16 sums in fp32 and rounds to 11 bits: logits of about 20
lie 0.016 apart.
"""

_SHOWN = 20


@dataclass(frozen=True, slots=True)
class TreeFindings:
    """What the tree part saw. `unavailable` says why there are no trees to see."""

    ledger: Ledger
    bound: float
    unavailable: str | None = None

    @property
    def defects(self) -> list[Mismatch]:
        return [item for item in self.ledger.mismatches if not self.is_near_tie(item)]

    def is_near_tie(self, item: Mismatch) -> bool:
        return item.margin is not None and item.margin <= self.bound

    def promises(self) -> list[Promise]:
        if self.unavailable is not None:
            absent = Promise("tree divergences that are defects", None, "<=", 0.0)
            return [dataclasses.replace(absent, note=self.unavailable, applies=False)]
        note = f"near ties: at most {figure(self.bound)} logits apart"
        return [
            none_of("tree divergences that are defects", len(self.defects), note),
            Promise("answers with drafts that branched", float(self.ledger.branched), ">=", 1.0),
        ]

    def tables(self) -> list[Table]:
        if self.unavailable is not None:
            return []
        header = (
            "",
            "at once",
            "answers",
            "branched",
            "diverged",
            "near ties",
            "defects",
            "widest",
            "drafted",
        )
        rows = [self._row(name, concurrency) for concurrency, name in self.ledger.entered]
        tables = [Table("Trees against the reference", header, rows)]
        if self.ledger.mismatches:
            tables.append(self._divergences())
        return tables

    def figures(self) -> dict[str, Any]:
        if self.unavailable is not None:
            return {"unavailable": self.unavailable}
        found = self.ledger.figures()
        divergences = [
            {**dataclasses.asdict(item), "near_tie": self.is_near_tie(item)}
            for item in self.ledger.mismatches
        ]
        kept = {name: found[name] for name in ("runs", "tokens", "variants")}
        return {"near_tie_logits": self.bound, "divergences": divergences, **kept}

    def _row(self, name: str, concurrency: int) -> tuple[str, ...]:
        tally = self.ledger.tally(name, concurrency)
        diverged = self.ledger.mismatches_of(name, concurrency)
        ties = sum(self.is_near_tie(item) for item in diverged)
        widest = max((item.margin for item in diverged if item.margin is not None), default=None)
        return (
            name,
            str(concurrency),
            str(tally.runs),
            str(tally.branched),
            str(len(diverged)),
            str(ties),
            str(len(diverged) - ties),
            number(widest, 4),
            str(tally.drafted),
        )

    def _divergences(self) -> Table:
        # The widest first: a defect is never among those that are not shown.
        falling = sorted(
            self.ledger.mismatches,
            key=lambda item: float("inf") if item.margin is None else item.margin,
            reverse=True,
        )
        rows = [
            (
                item.question,
                item.variant,
                str(item.position),
                " ".join(map(str, item.expected)) or "end",
                " ".join(map(str, item.found)) or "end",
                number(item.margin, 6),
                "near tie" if self.is_near_tie(item) else "DEFECT",
            )
            for item in falling[:_SHOWN]
        ]
        header = ("prompt", "variant", "position", "reference", "found", "margin", "")
        title = f"Tree divergences, margins in logits (the widest {len(rows)})"
        return Table(title, header, rows)


async def compare_trees(
    comparison: Comparison, cases: Sequence[Case], trees: Ledger, chains: Ledger, drafter: str
) -> None:
    """Trees alone, then two trees and two chains at a time.

    The chains are entered with all others: they are as exact beside a tree as anywhere.
    """
    own = [variant.by(drafter) for variant in TREES]
    for case in cases:
        for variant in own:
            await comparison.together([(case, variant, trees)])
    beside = [(variant, trees) for variant in own]
    beside += [(item.by(drafter), chains) for item in BESIDE_TREES]
    for first in range(len(cases)):
        await comparison.together(
            [
                (cases[(first + place) % len(cases)], variant, ledger)
                for place, (variant, ledger) in enumerate(beside)
            ]
        )
