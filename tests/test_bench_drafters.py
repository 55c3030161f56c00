"""The drafters suite on a real gateway with the tiny package."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.__main__ import main


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("prompts") / "prompts.jsonl"
    lines = [
        {"question_id": 1, "category": "writing", "turns": ["one two three one two three one two"]},
        {"question_id": 2, "category": "qa", "turns": ["four five four five four five four"]},
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def report_of(tiny_package: Path, prompts: Path, out: Path, *more: str) -> tuple[int, Any]:
    arguments = ["drafters", "--package", str(tiny_package), "--prompts", str(prompts)]
    status = main([*arguments, "--json", str(out), *more])
    return status, json.loads(out.read_text())


def test_a_package_without_heads_lists_the_n_gram_drafter(
    tiny_package: Path, prompts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, report = report_of(tiny_package, prompts, tmp_path / "out.json", "--list")
    assert status == 0
    assert report["figures"]["drafters"] == ["ngram"]
    assert "Drafters of the package" in capsys.readouterr().out


def test_ways_are_measured_by_task_and_temperature(
    tiny_package: Path, prompts: Path, tmp_path: Path
) -> None:
    status, report = report_of(
        tiny_package,
        prompts,
        tmp_path / "out.json",
        *("--drafters", "ngram:4", "--max-tokens", "24", "--threads", "1"),
    )
    assert status == 0
    cells = {
        (cell["way"], cell["task"], cell["temperature"]): cell
        for cell in report["figures"]["cells"]
    }
    tasks = ("chat", "qa", "every task")
    expected = {(w, t, d) for w in ("off", "ngram:4") for t in tasks for d in (0.0, 0.8)}
    assert cells.keys() == expected
    drafted = cells["ngram:4", "every task", 0.0]
    assert drafted["identical"] == 1.0
    assert drafted["alpha"] is not None
    assert len(drafted["survival"]) == 4
    assert drafted["tau"] == pytest.approx(
        sum(cells["ngram:4", task, 0.0]["tau"] for task in ("chat", "qa")) / 2
    )
    off = cells["off", "every task", 0.0]
    assert (off["tau"], off["alpha"], off["survival"]) == (1.0, None, [])
    assert [item["status"] for item in report["promises"]] == ["held"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--drafters", "eagle3"), "the package has ngram"),
        (("--temperatures", "warm"), "numbers with commas"),
        (("--temperatures", "0,0"), "one twice"),
        (("--max-tokens", "4"), "at least 8"),
    ],
)
def test_bad_arguments_are_named(
    tiny_package: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    assert main(["drafters", "--package", str(tiny_package), *arguments]) == 2
    assert said in capsys.readouterr().err
