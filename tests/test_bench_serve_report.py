"""`bench serve` end to end on the tiny package."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from bench.__main__ import main
from bench.serve import driving
from bench.serve.schema import SCHEMA, json_schema
from gateway.engine.requests import POLICIES
from tests.bench_schema_support import (
    ZERO,
    assert_figures_are_told_apart,
    changed,
    validator,
    without,
)
from tests.bench_serve_support import write_prompts

POLICIES_ASKED = ("--policies", "off,fixed:4", "--drafter", "ngram", "--threads", "1")
SMALL = ("--requests", "6", "--max-tokens", "16", "--repeats", "2", "--seconds", "1")
LOADS = ("--concurrency", "1,3", "--rates", "4,8", "--load", "1,3,1", "--answers", "2")


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("prompts") / "prompts.jsonl"
    return write_prompts(path, ["one two one two", "three four three", "five", "six seven six"])


@pytest.fixture(scope="module")
def common(tiny_package: Path, prompts: Path) -> tuple[str, ...]:
    return ("serve", "--package", str(tiny_package), "--prompts", str(prompts))


@pytest.fixture(scope="module")
def written(common: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("serve") / "out"
    assert main([*common, *POLICIES_ASKED, *SMALL, *LOADS, "--out", str(out)]) == 0
    return out


def read(out: Path) -> dict[str, Any]:
    """As its schema says, whatever became of the run."""
    found: dict[str, Any] = json.loads((out / "report.json").read_text())
    validator(json_schema()).validate(found)
    return found


def test_every_policy_bears_every_load(written: Path) -> None:
    report = read(written)
    assert (report["schema"], report["whole"]) == (SCHEMA, True)
    loads = ("1 stream", "3 streams", "4 requests/s", "8 requests/s")
    keys = [(cell["load"], cell["policy"]) for cell in report["loads"]]
    assert keys == [(load, policy) for load in loads for policy in ("off", "fixed:4")]
    for cell in report["loads"]:
        assert cell["answered"] > 0 == cell["refused"] == cell["failed"]
        assert cell["throughput"]["value"] > 0
        assert cell["ttft"]["p50"]["value"] <= cell["ttft"]["p99"]["value"]
        assert 0 <= cell["good"]["value"] <= 1
        if cell["policy"] == "off":
            assert cell["verified"] == {"value": 0.0, "unit": "tokens/round"}
            assert cell["ratio"]["absent"] == "not_comparable"
        else:
            assert cell["interval"]["low"] <= cell["ratio"]["value"] <= cell["interval"]["high"]
    closed = [cell for cell in report["loads"] if cell["load"] == "3 streams"]
    assert {cell["answered"] for cell in closed} == {2 * 6}
    assert report["targets"]["tpot_ms"] > 0
    assert "null" not in json.dumps(report)


def test_the_schema_tells_figures_and_words_apart(written: Path) -> None:
    report = read(written)
    load, phase = ("loads", 0), ("phases", 0)
    places = ((*load, "throughput"), (*load, "tpot", "p50"), (*phase, "ratio"), (*phase, "tpot"))
    for path in places:
        assert_figures_are_told_apart(json_schema(), report, *path)
    for path in ((*load, "ttft", "p99"), (*phase, "tpot"), (*phase, "tpot_ratio")):
        assert not validator(json_schema()).is_valid(changed(report, ZERO, *path))
    for bad in ({**report, "more": 1}, {**report, "loads": [], "phases": []}):
        assert not validator(json_schema()).is_valid(bad)
    for missing in (("runtime",), ("reasons", "failed"), (*phase, "cached"), ("targets",)):
        assert not validator(json_schema()).is_valid(without(report, *missing))


def test_a_changing_load_has_its_phases(written: Path) -> None:
    cells = read(written)["phases"]
    keys = [(cell["phase"], cell["streams"], cell["policy"]) for cell in cells]
    streams = {1: 1, 2: 3, 3: 1}
    assert keys == [(n, streams[n], policy) for n in (1, 2, 3) for policy in ("off", "fixed:4")]
    for cell in cells:
        assert cell["throughput"]["value"] > 0
        assert cell["tpot"]["value"] > 0
        if cell["policy"] != "off":
            assert cell["tpot_ratio"]["value"] > 0
        assert cell["rounds"]["value"] >= len(cell["widths"]) > 0
        if cell["policy"] == "off":
            assert set(cell["widths"]) == {0.0}
        assert cell["rounds_until"].get("absent", "missing") in ("missing", "unsupported")


def test_every_policy_finds_the_same_in_the_gateways_cache(written: Path) -> None:
    report = read(written)
    first = [cell for cell in report["phases"] if cell["phase"] == 1]
    alone = [cell for cell in report["loads"] if cell["load"] == "1 stream"]
    for off, own in (first, alone):
        assert off["cached"] == own["cached"], "whoever comes second has asked none of it before"
    # All four prompts had been asked before, again and again.
    assert first[0]["cached"]["value"] < 0.5


def test_the_directory_holds_plots_and_definitions(written: Path) -> None:
    text = (written / "report.md").read_text()
    assert "- **goodput**: " in text
    assert "- **rounds until**: " in text
    assert "- **not comparable**: " in text
    names = {
        f"{what}-by-{kind}.svg"
        for what in ("goodput", "throughput", "tpot", "ttft")
        for kind in ("streams", "rate")
    } | {"width-by-round.svg"}
    assert {path.name for path in written.glob("*.svg")} == names
    for name in names:
        assert f"({name})" in text
        ElementTree.parse(written / name)


def test_a_drafter_that_is_not_there_is_unsupported(
    common: tuple[str, ...], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    policies = ("--policies", "fixed:4", "--drafter", "mtp", "--concurrency", "1", "--quick")
    assert main([*common, *policies, *SMALL, "--out", str(out)]) == 0
    plain, absent = read(out)["loads"]
    assert plain["throughput"]["value"] > 0
    assert absent["throughput"]["absent"] == "unsupported"
    assert "mtp" in absent["throughput"]["why"]
    assert (absent["answered"], absent["windows"]) == (0, 0)


def test_a_full_queue_refuses(common: tuple[str, ...], tmp_path: Path) -> None:
    out = tmp_path / "out"
    narrow = ("--policies", "off", "--rates", "40", "--slots", "1", "--queue", "0", "--quick")
    assert main([*common, *narrow, *SMALL, "--out", str(out)]) == 0
    (cell,) = read(out)["loads"]
    assert cell["refused"] > 0
    assert cell["failed"] == 0
    assert cell["good"]["value"] < 1


def test_an_interruption_keeps_what_was_measured(
    common: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    progress = driving.progress

    def interrupt(line: str) -> None:
        progress(line)
        if line.startswith("serve: 1 stream, window 1"):
            raise KeyboardInterrupt

    monkeypatch.setattr(driving, "progress", interrupt)
    out = tmp_path / "out"
    asked = (*POLICIES_ASKED, *SMALL, "--concurrency", "1,2", "--load", "1,2", "--out", str(out))
    assert main([*common, *asked]) == 130
    report = read(out)
    assert report["whole"] is False
    assert [cell["windows"] for cell in report["loads"]] == [1, 1, 0, 0]
    assert report["loads"][1]["throughput"]["value"] > 0
    assert report["loads"][3]["throughput"]["absent"] == "missing"
    assert {cell["throughput"]["absent"] for cell in report["phases"]} == {"missing"}


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--policies", "nope"), f"knows {', '.join(POLICIES)}"),
        (("--policies", "fixed"), "as in fixed:4"),
        (("--policies", "off:3"), "as in fixed:4"),
        (("--drafter", "off"), "no drafter"),
        (("--concurrency", "65"), "takes 1 to 64"),
        (("--rates", "0"), "takes numbers from"),
        (("--load", "1"), "takes two phases or more"),
        (("--slots", "65"), "takes 1 to 64"),
        (("--queue", "-1"), "must be at least 0"),
        (("--tpot-ms", "0"), "must be at least 1"),
        (("--seconds", "nan"), "must be at least 1"),
        (("--temperature", "9"), "must be from 0 to 2"),
    ],
)
def test_bad_options_have_one_clear_error(
    common: tuple[str, ...],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    options: tuple[str, ...],
    problem: str,
) -> None:
    assert main([*common, *options, "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert problem in said
    assert said.count("\n") == 1
