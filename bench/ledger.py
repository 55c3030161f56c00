"""The ledger of an exactness run: what was compared, and what differed."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from bench.answers import Answer
from bench.report import Table, number

_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Where an answer left its reference. `margin`: what it takes to do so (`bench.margins`)."""

    question: str
    variant: str
    concurrency: int
    position: int
    expected: tuple[int, ...]
    found: tuple[int, ...]
    margin: float | None


@dataclass(slots=True)
class Tally:
    """Sums over answers. `branched` had a draft that branched, and were not exact for it."""

    runs: int = 0
    tokens: int = 0
    drafted: int = 0
    accepted: int = 0
    cached: int = 0
    rounds: int = 0
    branched: int = 0

    def enter(self, answer: Answer) -> None:
        self.runs += 1
        self.tokens += len(answer.ids)
        self.drafted += answer.timings.draft_n
        self.accepted += answer.timings.draft_n_accepted
        self.rounds += answer.timings.rounds
        self.cached += answer.usage.cached_tokens
        self.branched += not answer.timings.exact


@dataclass(slots=True)
class Ledger:
    mismatches: list[Mismatch] = field(default_factory=list)
    prefixes_missed: int = 0
    references: int = 0
    _tallies: dict[tuple[int, str], Tally] = field(default_factory=dict)

    @property
    def runs(self) -> int:
        return sum(tally.runs for tally in self._tallies.values())

    @property
    def tokens(self) -> int:
        return sum(tally.tokens for tally in self._tallies.values())

    @property
    def drafted(self) -> int:
        return sum(tally.drafted for tally in self._tallies.values())

    @property
    def branched(self) -> int:
        return sum(tally.branched for tally in self._tallies.values())

    def reference(self) -> None:
        self.references += 1

    def enter(self, variant: str, concurrency: int, answer: Answer, prefix_missed: bool) -> None:
        self._tallies.setdefault((concurrency, variant), Tally()).enter(answer)
        self.prefixes_missed += prefix_missed

    @property
    def entered(self) -> list[tuple[int, str]]:
        """Concurrency and name of what was compared."""
        return sorted(self._tallies)

    def tally(self, variant: str, concurrency: int) -> Tally:
        return self._tallies[concurrency, variant]

    def mismatches_of(self, variant: str, concurrency: int) -> list[Mismatch]:
        own = (variant, concurrency)
        return [item for item in self.mismatches if (item.variant, item.concurrency) == own]

    def by_variant(self) -> Table:
        rows = [
            (
                name,
                str(concurrency),
                str(tally.runs),
                str(len(self.mismatches_of(name, concurrency))),
                str(tally.tokens),
                str(tally.drafted),
                str(tally.accepted),
                str(tally.cached),
            )
            for (concurrency, name), tally in sorted(self._tallies.items())
        ]
        header = ("", "at once", "runs", "mismatches", "tokens", "drafted", "accepted", "cached")
        return Table("By variant", header, rows)

    def shown_mismatches(self) -> list[Table]:
        if not self.mismatches:
            return []
        rows = [
            (
                item.question,
                item.variant,
                str(item.concurrency),
                str(item.position),
                " ".join(map(str, item.expected)) or "end",
                " ".join(map(str, item.found)) or "end",
                number(item.margin, 4),
            )
            for item in self.mismatches[:_SHOWN]
        ]
        header = ("prompt", "variant", "at once", "position", "reference", "found", "margin")
        title = f"Mismatches, margins in logits (the first {len(rows)})"
        return [Table(title, header, rows)]

    def figures(self) -> dict[str, Any]:
        return {
            "runs": self.runs,
            "references": self.references,
            "tokens": self.tokens,
            "mismatches": [dataclasses.asdict(item) for item in self.mismatches],
            "prefixes_missed": self.prefixes_missed,
            "variants": [
                {
                    "variant": name,
                    "concurrency": concurrency,
                    "mismatches": len(self.mismatches_of(name, concurrency)),
                    **dataclasses.asdict(tally),
                }
                for (concurrency, name), tally in sorted(self._tallies.items())
            ],
        }
