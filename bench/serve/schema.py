"""The report of a run under load as plain data. Its JSON form is described by `schema.json`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bench import head
from bench.head import Head
from bench.run.schema import Absent, Interval, Metric, schema_of
from bench.serve.plan import Targets

SCHEMA = "outpace-bench-serve/2"


@dataclass(frozen=True, slots=True)
class LoadCell:
    """One policy under one load, all windows together. `ratio` is that of tokens per second to
    plain decoding's."""

    load: str
    policy: str
    windows: int
    goodput: Metric
    good: Metric
    answered: int
    refused: int
    failed: int
    throughput: Metric
    ratio: Metric
    interval: Interval | Absent
    ttft: Mapping[str, Metric]
    tpot: Mapping[str, Metric]
    queue: Mapping[str, Metric]
    cached: Metric
    verified: Metric
    tau: Metric


@dataclass(frozen=True, slots=True)
class PhaseCell:
    """One policy in one phase of a changing load. `ratio` is that of tokens per second to plain
    decoding's, `tpot_ratio` that of times per token, on the same prompts. `settled` is what a round
    of the first stream verified in the phase's second half, `rounds_until` how many it took to come
    halfway there from where the phase before had settled."""

    phase: int
    streams: int
    policy: str
    throughput: Metric
    ratio: Metric
    interval: Interval | Absent
    tpot: Metric
    tpot_ratio: Metric
    tpot_interval: Interval | Absent
    cached: Metric
    rounds: Metric
    settled: Metric
    rounds_until: Metric
    widths: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class ServeReport:
    head: Head
    source: str
    prompts: int
    max_tokens: int
    repeats: int
    temperature: float
    seed: int
    queue: int
    targets: Targets | Absent
    loads: tuple[LoadCell, ...]
    phases: tuple[PhaseCell, ...]


def document(report: ServeReport) -> dict[str, Any]:
    """The report as JSON data."""
    return head.document(SCHEMA, report)


def json_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of `document`."""
    return schema_of("bench.serve")
