"""The report of the grid as plain data. Its JSON form is described by `schema.json`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bench import head
from bench.head import Head
from bench.run.schema import Absent, Interval, Metric, Quantity, schema_of

SCHEMA = "outpace-bench-synthetic/1"


@dataclass(frozen=True, slots=True)
class Cell:
    """One point under one load. Speed-ups are over plain decoding, above 1 is faster."""

    concurrency: int
    length: int
    alpha: float
    proposed: Metric
    tau: Metric
    tau_formula: Quantity
    token: Metric
    off_token: Metric
    token_predicted: Metric
    round: Metric
    round_predicted: Metric
    off_predicted: Metric
    off_error: Metric
    speedup: Metric
    interval: Interval | Absent
    speedup_formula: Metric
    speedup_predicted: Metric
    round_error: Metric
    token_error: Metric
    break_even: Metric


@dataclass(frozen=True, slots=True)
class Report:
    head: Head
    shape: str
    drafter: str
    rounds: int
    repeats: int
    seed: int
    cells: tuple[Cell, ...]


def document(report: Report) -> dict[str, Any]:
    """The report as JSON data."""
    return head.document(SCHEMA, report)


def json_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of `document`."""
    return schema_of("bench.synthetic")
