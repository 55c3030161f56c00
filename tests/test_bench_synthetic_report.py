"""`bench synthetic` end to end on the tiny package."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from bench.__main__ import main
from bench.synthetic import driving
from bench.synthetic.schema import SCHEMA, json_schema
from models.package import load_package
from tests.bench_run_support import with_broken_drafter
from tests.bench_schema_support import (
    ZERO,
    assert_figures_are_told_apart,
    changed,
    validator,
    without,
)

GRID = ("--alpha", "0.3,0.9", "--lengths", "1,4", "--rounds", "100", "--threads", "1")


@pytest.fixture(scope="module")
def written(roomy_package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("synthetic") / "out"
    load = ("--concurrency", "1,2", "--repeats", "2", "--out", str(out))
    assert main(["synthetic", "--package", str(roomy_package), *GRID, *load]) == 0
    return out


def read(out: Path) -> dict[str, Any]:
    """As its schema says, whatever became of the run."""
    found: dict[str, Any] = json.loads((out / "report.json").read_text())
    validator(json_schema()).validate(found)
    return found


def test_every_point_is_measured_with_whole_drafts(written: Path) -> None:
    report = read(written)
    assert (report["schema"], report["whole"]) == (SCHEMA, True)
    cells = report["cells"]
    keys = [(cell["concurrency"], cell["length"], cell["alpha"]) for cell in cells]
    assert keys == [(n, length, alpha) for n in (1, 2) for length in (1, 4) for alpha in (0.3, 0.9)]
    for cell in cells:
        assert cell["proposed"] == {"value": cell["length"], "unit": "tokens/round"}
        assert cell["speedup"]["value"] > 0
        assert cell["round_predicted"]["value"] > 0
        tau = cell["tau"]["value"]
        assert tau == pytest.approx(cell["tau_formula"]["value"], rel=0.25)
        assert cell["round"]["value"] == pytest.approx(tau * cell["token"]["value"])
    assert "null" not in json.dumps(report)


def test_the_schema_tells_figures_and_words_apart(written: Path) -> None:
    report = read(written)
    for name in ("round", "speedup", "break_even", "token_error"):
        assert_figures_are_told_apart(json_schema(), report, "cells", 0, name)
    for name in ("round", "speedup", "token"):
        zero = changed(report, ZERO, "cells", 0, name)
        assert not validator(json_schema()).is_valid(zero)
    for path in (("cells", 0, "interval"), ("runtime",), ("started",)):
        assert not validator(json_schema()).is_valid(without(report, *path))
    assert not validator(json_schema()).is_valid({**report, "more": 1})


def test_the_directory_holds_heat_maps_and_definitions(written: Path) -> None:
    text = (written / "report.md").read_text()
    assert text.count("- **break-even**: ") == 2, "one for each load"
    names = {
        f"{what}-c{streams}.svg"
        for what in ("measured", "formula", "predicted", "difference")
        for streams in (1, 2)
    }
    assert {path.name for path in written.glob("*.svg")} == names
    for name in names:
        assert f"({name})" in text
        ElementTree.parse(written / name)


def test_a_drafter_that_fails_has_its_word(tiny_package: Path, tmp_path: Path) -> None:
    package = with_broken_drafter(load_package(tiny_package), tmp_path / "package")
    out = tmp_path / "out"
    grid = ("--drafter", "draft-model", "--alpha", "0.5", "--lengths", "2", "--quick")
    assert main(["synthetic", "--package", str(package.path), *grid, "--out", str(out)]) == 0
    (cell,) = read(out)["cells"]
    assert cell["speedup"]["absent"] == "failed"
    assert "| failed |" in (out / "report.md").read_text()


def test_an_interruption_keeps_what_was_measured(
    roomy_package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    progress = driving.progress

    def interrupt(line: str) -> None:
        progress(line)
        if "pass 1" in line:
            raise KeyboardInterrupt

    monkeypatch.setattr(driving, "progress", interrupt)
    out = tmp_path / "out"
    load = ("--concurrency", "1,2", "--repeats", "2", "--out", str(out))
    assert main(["synthetic", "--package", str(roomy_package), *GRID, *load]) == 130
    report = read(out)
    assert report["whole"] is False
    assert all(cell["speedup"]["value"] > 0 for cell in report["cells"][:4])
    assert {cell["speedup"]["absent"] for cell in report["cells"][4:]} == {"missing"}


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--alpha", "2"), "takes numbers from 0 to 1"),
        (("--lengths", "1..40"), "takes 1 to 31"),
        (("--concurrency", "8"), "takes 1 to 4"),
        (("--drafter", "off"), "takes ngram"),
        (("--drafter", "eagle3"), "unknown drafter"),
        (("--rounds", "15"), "must be at least 16"),
        (("--rounds", "200"), "too many for a context of 256"),
        (("--shape", "0.5b"), "both name the target"),
    ],
)
def test_bad_options_have_one_clear_error(
    tiny_package: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    options: tuple[str, ...],
    problem: str,
) -> None:
    out = ("--out", str(tmp_path / "out"))
    assert main(["synthetic", "--package", str(tiny_package), *options, *out]) == 2
    said = capsys.readouterr().err
    assert problem in said
    assert said.count("\n") == 1
