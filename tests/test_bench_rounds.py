"""What a round takes beside its runs."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

import numpy as np
import pytest

from bench.__main__ import main
from bench.rounds import NullRuns, Rounds, behind, fill, findings, run
from bench.setup import Setup
from models.errors import UserError
from models.package import load_package


def test_behind_a_token_comes_the_next_of_a_circle_or_a_surprise() -> None:
    said = [300]
    for position in range(400):
        said.append(behind(said[-1], position))
    assert said == [300, *(behind(token, place) for place, token in enumerate(said[:-1]))]
    surprises = [token for token in said if token >= 348]
    assert 0.1 < len(surprises) / len(said) < 0.3


def test_a_targets_outputs() -> None:
    arrays = {
        "input_ids": np.array([[305, 306]]),
        "position_ids": np.array([[1, 2]]),
        "logits_index": np.array([0, 1]),
        "top_ids": np.zeros((2, 4), dtype=np.int64),
        "top_values": np.zeros((2, 4), dtype=np.float32),
        "logsumexp": np.zeros(2, dtype=np.float32),
    }
    fill(arrays)
    assert arrays["top_ids"][:, 0].tolist() == [behind(305, 1), behind(306, 2)]
    assert (np.diff(arrays["top_values"]) < 0).all()
    assert arrays["logsumexp"].tolist() == [40.0, 40.0]


def test_a_drafters_outputs() -> None:
    arrays = {
        "input_ids": np.array([[305, 346]]),
        "draft_ids": np.zeros(3, dtype=np.int64),
        "weights": np.zeros((3, 4), dtype=np.float32),
        "top_ids": np.zeros((3, 4), dtype=np.int64),
        "top_values": np.zeros((3, 4), dtype=np.float32),
        "logsumexp": np.zeros(3, dtype=np.float32),
    }
    fill(arrays)
    assert arrays["draft_ids"].tolist() == [347, 300, 301]
    assert arrays["top_ids"][:, 0].tolist() == [347, 300, 301]
    assert arrays["weights"].sum(axis=1).tolist() == [1, 1, 1]


def test_other_graphs_are_left_alone() -> None:
    arrays = {"sources": np.arange(3)}
    fill(arrays)
    assert arrays["sources"].tolist() == [0, 1, 2]


def test_the_median_of_the_means_of_answers_is_judged_where_runs_do_nothing() -> None:
    answers = [
        Rounds([0.2, 0.2, 8.0], [1.0] * 3, [0, 0, 0]),
        Rounds([0.3], [1.0], [1]),
        Rounds([0.1], [2.0], [3]),
    ]
    measured = {
        ("off", 0.0): answers,
        ("ngram", 0.0): [Rounds([0.4], [0.5], [2])],
        ("ngram, temperature 1", 0.0): [Rounds([0.6], [0.7], [2])],
        ("ngram", 5.0): [Rounds([0.4], [5.4], [2])],
    }
    found = findings(measured, {"tokens": 100})
    assert [(promise.measured, promise.held) for promise in found.promises] == [
        (pytest.approx(0.3), True),
        (pytest.approx(0.4), False),
    ]
    first, *_, last = found.figures["ways"]
    assert (first["way"], first["session_ms"], first["rounds"]) == ("off", 0.0, 5)
    assert first["tokens"] == pytest.approx(4 / 5)
    assert first["median_ms"] == pytest.approx(0.2)
    assert first["whole_ms"] == pytest.approx(6 / 5)
    assert (last["way"], last["session_ms"], last["mean_ms"]) == ("ngram", 5.0, 0.4)


def test_a_round_lies_between_two_runs_of_the_target_without_the_drafters() -> None:
    runs = NullRuns()
    rounds = runs.begin(0.0)
    runs.note(1.0, 1.5, None)
    runs.note(2.0, 2.5, 1)
    runs.note(2.6, 2.7, None)
    runs.note(2.7, 2.8, None)
    runs.note(3.0, 3.5, 4)
    runs.note(3.6, 4.0, 1)
    assert rounds.taken_ms == pytest.approx([300.0, 100.0])
    assert rounds.whole_ms == pytest.approx([1000.0, 600.0])
    assert rounds.tokens == [4, 1]
    assert runs.begin(5.0).taken_ms == []


@pytest.mark.parametrize("text", ["", "x", "-1", "0,", "5000"])
def test_times_of_runs_that_cannot_be_are_refused(
    text: str, tiny_package: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments = ["rounds", "--package", str(tiny_package), f"--session-ms={text}"]
    assert main(arguments) == 2
    assert "milliseconds from 0 to 1000 with commas" in capfd.readouterr().err


def test_a_short_run(tiny_package: Path, capfd: pytest.CaptureFixture[str]) -> None:
    arguments = ["rounds", "--package", str(tiny_package), "--tokens", "80"]
    arguments += ["--repeats", "1", "--session-ms", "0,1"]
    assert main(arguments) in (0, 1)
    out = capfd.readouterr().out
    assert "Milliseconds of a round beside its runs" in out
    assert "a round beside runs that do nothing, off" in out
    assert "a round beside runs that do nothing, ngram" in out


@pytest.mark.parametrize("wrong", [["--tokens", "79"], ["--repeats", "0"]])
def test_too_little_to_measure(
    wrong: list[str], tiny_package: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["rounds", "--package", str(tiny_package), *wrong]) == 2
    assert "--tokens must be at least 80" in capsys.readouterr().err


def test_runs_of_a_device_are_not_played(tiny_package: Path) -> None:
    package = load_package(tiny_package)
    target = dataclasses.replace(package.manifest.target, device="cuda")
    manifest = dataclasses.replace(package.manifest, target=target)
    setup = Setup(dataclasses.replace(package, manifest=manifest), ())
    parsed = argparse.Namespace(tokens=100, repeats=1)
    with pytest.raises(UserError, match="for cuda, whose runs are not played here"):
        run(parsed, setup)
