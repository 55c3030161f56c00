"""Validators of the reports of suites, and reports that were tampered with."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker
from referencing import Registry
from referencing.jsonschema import DRAFT202012

from bench.run import schema as of_run

WORDS = ("missing", "unsupported", "failed", "not_comparable")
NO_FIGURES: tuple[object, ...] = (
    None,
    0,
    "missing",
    {"value": 1.0},
    {"value": None, "unit": "ms"},
    {"absent": "zero", "why": "so"},
    {"absent": "missing"},
    {"absent": "missing", "why": ""},
    {"absent": "failed", "why": "so", "kept": {"value": 1.0, "unit": "ms"}},
)
"""What stands nowhere for a figure."""

ZERO = {"value": 0.0, "unit": "ms"}
"""Stands nowhere for a time."""


def validator(schema: Mapping[str, Any]) -> Draft202012Validator:
    """Of a suite's `json_schema()`, which may refer to that of `run` as its neighbour."""
    Draft202012Validator.check_schema(schema)
    run = DRAFT202012.create_resource(of_run.json_schema())
    registry: Registry[Any] = Registry().with_resource("../run/schema.json", run)
    return Draft202012Validator(schema, registry=registry, format_checker=FormatChecker())


def changed(report: Mapping[str, Any], value: object, *path: str | int) -> dict[str, Any]:
    """A copy of `report` with `value` at `path`."""
    copy, place = _copy(report, path)
    assert place[path[-1]] is not None
    place[path[-1]] = value
    return copy


def without(report: Mapping[str, Any], *path: str | int) -> dict[str, Any]:
    """A copy of `report` in which there is nothing at `path`."""
    copy, place = _copy(report, path)
    del place[path[-1]]
    return copy


def _copy(report: Mapping[str, Any], path: Sequence[str | int]) -> tuple[dict[str, Any], Any]:
    """A copy, and what holds the last step of `path` in it."""
    copy: dict[str, Any] = json.loads(json.dumps(report))
    place: Any = copy
    for step in path[:-1]:
        place = place[step]
    return copy, place


def assert_figures_are_told_apart(
    schema: Mapping[str, Any], report: Mapping[str, Any], *path: str | int
) -> None:
    """The figure at `path` may be a quantity or any of the four words, and nothing else."""
    found = validator(schema)
    assert found.is_valid(changed(report, {"value": 1.5, "unit": "ms"}, *path))
    for word in WORDS:
        assert found.is_valid(changed(report, {"absent": word, "why": "so"}, *path))
    for bad in NO_FIGURES:
        assert not found.is_valid(changed(report, bad, *path)), bad
    assert not found.is_valid(without(report, *path))
