"""The command end to end on the tiny package: its files, and what they say of what is not there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from bench.__main__ import main
from bench.run.schema import REASONS, SCHEMA, json_schema
from bench.run.tables import LAYOUTS
from models.package import load_package
from tests.bench_run_support import with_broken_drafter
from tests.bench_schema_support import (
    ZERO,
    assert_figures_are_told_apart,
    changed,
    validator,
    without,
)

GROUPS = {
    "target",
    "drafter",
    "sampling",
    "speculation",
    "runtime",
    "workload",
    "metrics",
    "baseline",
}
GRID = ("--drafters", "ngram,draft-model,eagle3", "--policies", "fixed", "--lengths", "4")
LOAD = ("--concurrency", "1,2", "--temperature", "0", "--repeats", "1", "--max-tokens", "24")


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("prompts") / "prompts.jsonl"
    said = [
        ("writing", "one two three one two three"),
        ("qa", "four five four five"),
        ("qa", "six"),
    ]
    lines = [{"category": category, "turns": [text]} for category, text in said]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.fixture(scope="module")
def written(tiny_package: Path, prompts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a drafter that works, one that cannot be loaded and one that is not there."""
    directory = tmp_path_factory.mktemp("run")
    package = with_broken_drafter(load_package(tiny_package), directory / "package")
    common = ("--package", str(package.path), "--prompts", str(prompts), "--threads", "1")
    out = directory / "out"
    assert main(["run", *common, *GRID, *LOAD, "--out", str(out)]) == 0
    return out


@pytest.fixture(scope="module")
def report(written: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((written / "report.json").read_text())
    return found


def cells_of(report: Mapping[str, Any], setting: str, category: str = "all") -> list[Any]:
    return [
        cell
        for cell in report["cells"]
        if (cell["setting"], cell["workload"]["category"]) == (setting, category)
    ]


def test_the_report_is_as_its_schema_says(report: dict[str, Any]) -> None:
    validator(json_schema()).validate(report)
    assert report["schema"] == SCHEMA
    assert report["reasons"].keys() == REASONS.keys()
    for cell in report["cells"]:
        assert cell.keys() == {"setting", *GROUPS}
    assert "null" not in json.dumps(report)


def test_the_schema_tells_figures_and_words_apart(report: dict[str, Any]) -> None:
    for path in (("metrics", "alpha"), ("metrics", "tpot"), ("baseline", "ratio")):
        assert_figures_are_told_apart(json_schema(), report, "cells", 0, *path)
    zero = changed(report, ZERO, "cells", 0, "metrics", "tpot")
    assert not validator(json_schema()).is_valid(zero)
    assert not validator(json_schema()).is_valid(without(report, "started"))
    assert not validator(json_schema()).is_valid({**report, "more": 1})


def test_every_setting_has_its_categories_under_every_load(report: dict[str, Any]) -> None:
    settings = ("off", "ngram fixed:4", "draft-model fixed:4", "eagle3 fixed:4")
    keys = [
        (cell["workload"]["concurrency"], cell["setting"], cell["workload"]["category"])
        for cell in report["cells"]
    ]
    categories = ("writing", "qa", "all")
    assert keys == [(n, name, kind) for n in (1, 2) for name in settings for kind in categories]


def test_what_works_is_measured(report: dict[str, Any]) -> None:
    alone, together = cells_of(report, "ngram fixed:4")
    for cell in (alone, together):
        metrics, baseline = cell["metrics"], cell["baseline"]
        assert metrics["tpot"]["value"] > 0
        assert metrics["throughput"]["value"] > 0
        assert len(metrics["survival"]) == 4
        assert 0 <= metrics["alpha"]["value"] <= 1
        assert baseline["identical"]["value"] == 1.0
        assert baseline["interval"]["low"] <= baseline["ratio"]["value"]
        assert baseline["ratio"]["value"] <= baseline["interval"]["high"]
        assert cell["workload"]["output_tokens"] == {"value": 24.0, "unit": "tokens"}
        assert cell["speculation"]["length_limit"] == {"value": 4, "unit": "tokens"}
        proposed = cell["speculation"]["proposed_length"]
        accepted = metrics["accepted_length"]
        assert proposed["unit"] == accepted["unit"] == "tokens/round"
        assert 0 < proposed["value"] <= 4
        assert accepted["value"] / proposed["value"] == pytest.approx(metrics["alpha"]["value"])
    assert alone["drafter"]["parts"][0]["checkpoint"]["absent"] == "unsupported"
    (mixed, _) = cells_of(report, "ngram fixed:4", "qa")[::-1]
    assert mixed["metrics"]["throughput"]["absent"] == "not_comparable"


def test_a_drafter_that_fails_and_one_that_is_not_there_have_reasons(
    report: dict[str, Any],
) -> None:
    for setting, reason in (("draft-model fixed:4", "failed"), ("eagle3 fixed:4", "unsupported")):
        for cell in cells_of(report, setting):
            metrics, baseline = cell["metrics"], cell["baseline"]
            figures = [metrics["tpot"], metrics["survival"], metrics["ttft"]["p50"]]
            figures += [baseline["ratio"], cell["speculation"]["lossless"]]
            figures.append(cell["workload"]["output_tokens"])
            assert {figure["absent"] for figure in figures} == {reason}
            assert baseline["tpot"]["value"] > 0
    failed = cells_of(report, "draft-model fixed:4")[0]
    assert failed["drafter"]["parts"][0]["checkpoint"] == "test"
    missing = cells_of(report, "eagle3 fixed:4")[0]
    assert "this package has" in missing["metrics"]["tpot"]["why"]


def test_markdown_has_definitions_under_every_table(written: Path) -> None:
    text = (written / "report.md").read_text()
    for layout in LAYOUTS:
        sections = text.split(f"### {layout.title}\n")[1:]
        assert len(sections) == 2, "one for each load"
        for section in sections:
            own = section.split("\n#")[0]
            assert all(f"- **{column.header}**: " in own for column in layout.columns)
    assert "| draft-model fixed:4 | failed |" in text
    assert "| eagle3 fixed:4 | unsupported |" in text
    for reason, meaning in REASONS.items():
        assert f"- **{reason.replace('_', ' ')}**: {meaning}" in text


def test_plots_are_beside_it_and_named_in_it(written: Path) -> None:
    plots = {path.name for path in written.glob("*.svg")}
    assert plots == {
        f"{kind}-t0-c{streams}.svg"
        for kind in ("ratio", "survival", "arrivals")
        for streams in (1, 2)
    } | {"streams-t0.svg"}
    text = (written / "report.md").read_text()
    for name in plots:
        assert f"]({name})" in text
        drawing = (written / name).read_text()
        ElementTree.fromstring(drawing)
        assert "ngram fixed:4" in drawing
        assert "eagle3" not in drawing


def test_a_directory_with_something_in_it_is_refused_before_anything_runs(
    written: Path, tiny_package: Path, prompts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = ("--package", str(tiny_package), "--prompts", str(prompts))
    assert main(["run", *common, "--out", str(written)]) == 2
    assert "is not empty" in capsys.readouterr().err
