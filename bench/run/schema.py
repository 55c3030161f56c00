"""The report of a run as plain data. Its JSON form is described by `schema.json`.

A figure is a number with its unit, or says why there is none; never 0 or null for want of one.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from types import MappingProxyType
from typing import Any, Literal

SCHEMA = "outpace-bench-run/1"
ALL = "all"
"""The category of a cell of every prompt."""

Reason = Literal["missing", "unsupported", "failed", "not_comparable"]

REASONS: Mapping[Reason, str] = MappingProxyType(
    {
        "missing": "could have been measured, and was not in this run",
        "unsupported": "this package, drafter or gateway has no such thing",
        "failed": "was tried and ended in an error",
        "not_comparable": "was measured, but of different things; the figure is kept beside it",
    }
)


@dataclass(frozen=True, slots=True)
class Quantity:
    value: float
    unit: str


@dataclass(frozen=True, slots=True)
class Interval:
    """Where a figure lies with probability `confidence`, by bootstrap over `prompts`."""

    low: float
    high: float
    unit: str
    confidence: float
    prompts: int


@dataclass(frozen=True, slots=True)
class Absent:
    """No figure, and why. `kept` is a figure that must not be compared."""

    absent: Reason
    why: str
    kept: Quantity | None = None


Metric = Quantity | Absent
Text = str | Absent


@dataclass(frozen=True, slots=True)
class TargetGroup:
    """The model that decides. `tokenizer` and `package` are SHA-256 digests."""

    name: str
    checkpoint: str
    revision: str
    sha256: str
    architecture: str
    weight_type: str
    kv_type: str
    tokenizer: str
    package: str


@dataclass(frozen=True, slots=True)
class DrafterPart:
    type: str
    checkpoint: Text
    revision: Text
    sha256: Text


@dataclass(frozen=True, slots=True)
class DrafterGroup:
    """`parts` are the drafters that `name` stands for; none where nothing is drafted."""

    name: str
    parts: tuple[DrafterPart, ...]


@dataclass(frozen=True, slots=True)
class SamplingGroup:
    temperature: float
    top_p: float
    seed: int
    seed_semantics: str


@dataclass(frozen=True, slots=True)
class SpeculationGroup:
    """`length_limit` is what requests asked for at most (with the policy `fixed` exactly, where the
    drafter knows so many); `proposed_length` is measured: draft tokens verified per round."""

    policy: str
    length_limit: Metric
    proposed_length: Metric
    rule: Text
    lossless: bool | Absent
    bonus_semantics: str


@dataclass(frozen=True, slots=True)
class RuntimeGroup:
    """`kernels` says how sums are made; `hardware` and `versions` are those of `bench.machine`."""

    versions: Mapping[str, str]
    provider: str
    kernels: Mapping[str, Any]
    hardware: Mapping[str, Any]
    threads: int
    slots: int


@dataclass(frozen=True, slots=True)
class WorkloadGroup:
    """`category` is one of the prompts' or `ALL`. Token counts are means of an answer."""

    source: str
    category: str
    prompts: int
    repeats: int
    concurrency: int
    max_tokens: int
    input_tokens: Metric
    cached_tokens: Metric
    output_tokens: Metric


@dataclass(frozen=True, slots=True)
class MetricsGroup:
    draft_time: Metric
    verify_time: Metric
    overhead_time: Metric
    tau: Metric
    accepted_length: Metric
    alpha: Metric
    survival: tuple[Metric, ...] | Absent
    ttft: Mapping[str, Metric]
    tpot: Metric
    inter_token_latency: Mapping[str, Metric]
    throughput: Metric


@dataclass(frozen=True, slots=True)
class BaselineGroup:
    """Speculation off on the same target and workload, interleaved in the same run."""

    tpot: Metric
    ratio: Metric
    interval: Interval | Absent
    identical: Metric
    throughput: Metric


@dataclass(frozen=True, slots=True)
class RunCell:
    """One category under one condition: the eight groups."""

    setting: str
    target: TargetGroup
    drafter: DrafterGroup
    sampling: SamplingGroup
    speculation: SpeculationGroup
    runtime: RuntimeGroup
    workload: WorkloadGroup
    metrics: MetricsGroup
    baseline: BaselineGroup


@dataclass(frozen=True, slots=True)
class RunReport:
    """A whole run. `started` is UTC, ISO 8601."""

    started: str
    seconds: float
    command: str
    cells: tuple[RunCell, ...]


def document(report: RunReport) -> dict[str, Any]:
    """The report as JSON data."""
    return {"schema": SCHEMA, "reasons": dict(REASONS), **plain(report)}


def json_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of `document`."""
    return schema_of("bench.run")


def schema_of(suite: str) -> dict[str, Any]:
    """The JSON Schema beside the code of a suite. Others than this one refer to its definitions by
    the path from file to file."""
    text = resources.files(suite).joinpath("schema.json").read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


def plain(value: Any) -> Any:
    """`value` as JSON data. A field that is None is left out: there is none but `kept`."""
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
        held = {name: getattr(value, name) for name in names}
        return {name: plain(each) for name, each in held.items() if each is not None}
    if isinstance(value, Mapping):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value
