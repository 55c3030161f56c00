"""Promises, the JSON document, the printed report, and the exit status."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

import bench.__main__ as command_line
from bench import cost, drafting
from bench.machine import package_digest, resident_bytes
from bench.prompts import Question
from bench.report import (
    SCHEMA,
    Findings,
    Promise,
    Table,
    document,
    figure,
    none_of,
    render,
    unjudged,
)
from bench.setup import Setup
from models.errors import UserError
from models.package import MANIFEST, load_package


def findings(*promises: Promise) -> Findings:
    return Findings({"repeats": 3}, {"ms": 1.5}, promises, [Table("T", ("a", "b"), [("x", "1")])])


@pytest.mark.parametrize(
    ("promise", "held", "status"),
    [
        (Promise("p", 1.4, "<=", 1.4), True, "held"),
        (Promise("p", 1.41, "<=", 1.4), False, "BROKEN"),
        (Promise("p", 5.0, ">=", 5.0), True, "held"),
        (Promise("p", 4.9, ">=", 5.0), False, "BROKEN"),
        (Promise("p", None, "<=", 1.4), False, "missing"),
        (Promise("p", None, "<=", 1.4, applies=False), None, "not measured"),
        (Promise("p", 9.0, "<=", 1.4, applies=False), None, "not applicable"),
        (unjudged(Promise("p", 9.0, "<=", 1.4), "w"), None, "not measured"),
        (none_of("p", 0), True, "held"),
        (none_of("p", 1), False, "BROKEN"),
    ],
)
def test_a_promise_is_judged(promise: Promise, held: bool | None, status: str) -> None:
    assert promise.held is held
    assert promise.status == status


def test_findings_hold_unless_a_promise_that_applies_does_not() -> None:
    fine, other = Promise("p", 1, "<=", 2), Promise("q", None, "<=", 2, applies=False)
    assert findings(fine, other).held
    assert not findings(fine, other, Promise("r", None, "<=", 2)).held


def test_the_document_says_what_ran_on_what(tiny_package: Path) -> None:
    package = load_package(tiny_package)
    setup = Setup(package, [Question("1", "all", ("a",))], threads=1, quick=True)
    report = document("cost", setup, findings(none_of("p", 1)), 0.0, 12.34)
    again = json.loads(json.dumps(report, allow_nan=False))
    assert again["schema"] == SCHEMA
    assert again["suite"] == "cost"
    assert again["started"] == "1970-01-01T00:00:00+00:00"
    assert again["seconds"] == 12.3
    assert again["prompts"] == {"source": "built-in", "count": 1, "categories": {"all": 1}}
    assert again["settings"] == {"quick": True, "repeats": 3}
    assert again["figures"] == {"ms": 1.5}
    assert again["machine"]["threads"] == 1
    assert again["machine"]["processor"]
    assert again["versions"]["onnxruntime"]
    assert again["package"]["name"] == "tiny"
    written = json.loads((tiny_package / MANIFEST).read_text())["digest"]
    assert again["package"]["digest"] == package_digest(package) == written
    assert again["promises"] == [
        {
            "name": "p",
            "measured": 1.0,
            "relation": "<=",
            "bound": 0.0,
            "unit": "",
            "note": "",
            "applies": True,
            "held": False,
            "status": "BROKEN",
        }
    ]
    assert again["held"] is False


def test_the_report_ends_with_the_promises(tiny_package: Path) -> None:
    setup = Setup(load_package(tiny_package), [Question("1", "all", ("a",))])
    found = findings(Promise("ratio", 1.234, "<=", 1.4, "x"))
    lines = render(document("cost", setup, found, 0.0, 1.0), found).splitlines()
    assert lines[0].startswith("cost: tiny (fp32, ")
    assert lines[-1].split() == ["ratio", "1.23", "x", "<=", "1.4", "x", "held"]


def test_a_report_without_promises_has_no_table_of_them(tiny_package: Path) -> None:
    setup = Setup(load_package(tiny_package), [Question("1", "all", ("a",))])
    shown = render(document("drafters", setup, findings(), 0.0, 1.0), findings())
    assert "Promises" not in shown


def test_a_table_is_aligned_and_an_empty_header_left_out() -> None:
    table = Table("T", ("name", "n"), [("x", "1"), ("longer", "12")])
    assert table.render().splitlines() == ["T", "  name     n", "  x        1", "  longer  12"]
    assert Table("T", ("", ""), [("x", "1")]).render().splitlines() == ["T", "  x  1"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (2.0, "2"),
        (0.0105, "0.0105"),
        (1.375, "1.38"),
        (57.94, "57.9"),
        (1234.5, "1234"),
    ],
)
def test_a_figure_has_few_places(value: float, text: str) -> None:
    assert figure(value) == text


def test_the_exit_status_follows_the_promises(
    tiny_package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = True

    def run(parsed: argparse.Namespace, setup: Setup) -> Findings:
        return findings(none_of("p", 0 if held else 1))

    monkeypatch.setattr(cost, "run", run)
    file = tmp_path / "report.json"
    arguments = ["cost", "--package", str(tiny_package), "--json", str(file)]
    assert command_line.main(arguments) == 0
    assert json.loads(file.read_text())["held"] is True
    held = False
    assert command_line.main(arguments) == 1
    assert json.loads(file.read_text())["held"] is False


def test_prompts_are_those_of_the_file_the_built_in_ones_or_both(
    tiny_package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setups: list[Setup] = []

    def run(parsed: argparse.Namespace, setup: Setup) -> Findings:
        setups.append(setup)
        return findings()

    monkeypatch.setattr(cost, "run", run)
    file = tmp_path / "some.jsonl"
    file.write_text('{"turns": ["a"]}\n{"turns": ["b"]}\n')
    common = ["cost", "--package", str(tiny_package)]
    command_line.main(common)
    command_line.main([*common, "--prompts", str(file)])
    command_line.main([*common, "--prompts", str(file), "--builtin-repeating", "--limit", "4"])
    built_in, given, both = setups
    assert built_in.source == "built-in"
    assert len(built_in.questions) >= 8
    assert [question.turns for question in given.questions] == [("a",), ("b",)]
    assert given.source == str(file)
    assert [question.category for question in both.questions] == ["all", "edit", "extract", "copy"]


def test_what_a_user_did_wrong_is_status_2(
    tiny_package: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text("{\n")
    package = ["--package", str(tiny_package)]
    assert command_line.main(["exactness", *package, "--prompts", str(bad)]) == 2
    assert f"{bad}:1" in capsys.readouterr().err
    assert command_line.main(["cost", "--package", str(tmp_path)]) == 2
    assert "package.json" in capsys.readouterr().err
    assert command_line.main(["speed", *package, "--lengths", "auto"]) == 2
    assert "--lengths needs 0" in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        command_line.main(["cost", *package, "--limit", "0"])
    assert ended.value.code == 2


def test_a_report_that_cannot_be_written_is_status_2(
    tiny_package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cost, "run", lambda parsed, setup: findings())
    file = tmp_path / "absent" / "report.json"
    assert command_line.main(["cost", "--package", str(tiny_package), "--json", str(file)]) == 2


def test_lengths_are_read_as_the_wire_says_them() -> None:
    assert [(item.name, item.wire) for item in drafting.parse_lengths("0,auto, 8")] == [
        ("off", {"policy": "off"}),
        ("auto", {"policy": "auto"}),
        ("8", {"policy": "fixed", "length": 8}),
    ]


@pytest.mark.parametrize("text", ["0,x", "0,32", "0,-1", "0,", "0,0", "auto,4"])
def test_other_lengths_are_refused(text: str) -> None:
    with pytest.raises(UserError, match="--lengths"):
        drafting.parse_lengths(text)


def test_resident_memory_is_that_of_the_process() -> None:
    import os

    before = resident_bytes(os.getpid())
    held = bytearray(64 << 20)
    held[::4096] = b"x" * len(held[::4096])
    assert resident_bytes(os.getpid()) - before > 32 << 20
