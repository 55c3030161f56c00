"""The report of peers as plain data. Its JSON form is described by `schema.json`.

A metric is a number with its unit, or one of the four words that stand for none, with a reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bench.run.schema import REASONS, Absent, Interval, Metric, plain, schema_of

SCHEMA = "outpace-bench-peers/2"


@dataclass(frozen=True, slots=True)
class Ratio:
    """Time per token over that of one of our own settings; above 1 ours is faster."""

    ratio: Metric
    interval: Interval | Absent


@dataclass(frozen=True, slots=True)
class Row:
    """One contestant on the prompts of one category, or on all. `against` is by our settings'
    names."""

    contestant: str
    category: str
    prompts: int
    tokens: Metric
    time_per_token: Metric
    ttft: Metric
    tpot: Metric
    tau: Metric
    alpha: Metric
    agreement: Metric
    common: Metric
    identical: Metric
    against: Mapping[str, Ratio]


@dataclass(frozen=True, slots=True)
class ContestantGroup:
    """`waiting_use` is the share of one processor that all others used while it answered."""

    name: str
    ours: bool
    settings: Mapping[str, Any]
    versions: Mapping[str, str]
    memory: Metric
    waiting_use: Metric


@dataclass(frozen=True, slots=True)
class TriedRow:
    """A configuration in the selection run; `chosen` are measured on all prompts."""

    configuration: str
    settings: Mapping[str, Any]
    time_per_token: Metric
    agreement: Metric
    chosen: bool


@dataclass(frozen=True, slots=True)
class PeersReport:
    """`started` is UTC, ISO 8601; `whole` is False where the run was interrupted. `exported` is the
    agreement that the exporter found for each of our packages, teacher-forced on the fp32 model's
    answers. `bases` are those of our settings that ratios are of."""

    started: str
    seconds: float
    command: str
    whole: bool
    checkpoint: str
    sha256: str
    hardware: Mapping[str, Any]
    threads: int
    source: str
    max_tokens: int
    selection_prompts: int
    selection_max_tokens: int
    exported: Mapping[str, Metric]
    bases: tuple[str, ...]
    contestants: tuple[ContestantGroup, ...]
    rows: tuple[Row, ...]
    tried: tuple[TriedRow, ...]


def document(report: PeersReport) -> dict[str, Any]:
    """The report as JSON data."""
    return {"schema": SCHEMA, "reasons": dict(REASONS), **plain(report)}


def json_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of `document`."""
    return schema_of("bench.peers")
