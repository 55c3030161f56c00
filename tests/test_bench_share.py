"""The host's share: accept on random rows, whole rows counted, a run on the tiny package."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench import share
from bench.__main__ import main
from bench.random_rows import AcceptTime, Mode, Shape, Trial, measure, profile
from bench.rows import host_row
from bench.share import MODES, Decoded, _promises
from models.sampling.parameters import Sampling

SMALL = Shape(vocabulary=500, scale=3.0, width=8, top_k=64)


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_a_draft_is_the_best_that_could_be_proposed(mode: Mode) -> None:
    generator = np.random.default_rng(0)
    rows = [host_row(row, 64) for row in generator.normal(0, 6, (8, 500)).astype(np.float32)]
    trial = Trial(rows, mode, generator)
    assert len(trial.draft.tokens) == 7
    assert (trial.draft.proposals is None) == (mode.rule == "coupled")
    assert trial.accept() == trial.accept()
    if mode.rule == "coupled":
        assert trial.draft.tokens == tuple(int(row.logits.argmax()) for row in rows[:-1])
    if mode.name == "greedy":
        assert trial.accept() == 8


def test_whole_rows_are_opened_where_the_list_does_not_decide() -> None:
    flat = replace(SMALL, vocabulary=5000, scale=0.1)
    greedy, nucleus = (MODES[0], MODES[1])
    opened = {item.mode: item.opened for item in measure([greedy, nucleus], flat, 1)}
    assert opened[greedy.name] == 0
    assert opened[nucleus.name] >= 1
    (listed,) = measure([Mode("k", Sampling(temperature=1, top_k=8, seed=1))], flat, 1)
    assert listed.opened == 0
    assert listed.median_us > 0
    assert 1 <= listed.rows <= 8


def test_a_profile_names_what_the_accept_path_calls() -> None:
    text = profile(MODES[:2], SMALL, 1)
    assert "processing.py" in text
    assert "tottime" in text


def test_the_share_is_of_the_whole_round() -> None:
    decoded = Decoded("m", 20, 70, 30, accept_ms=3.0, draft_ms=7.0, verify_ms=90.0, whole_rows=0)
    assert decoded.share == 3.0
    assert replace(decoded, rounds=0).share is None
    shapes = [(v, s) for v in share.VOCABULARIES for s in share.SCALES]
    times = [AcceptTime("m", v, s, 300.0, 8.0, 0.0) for v, s in shapes]
    held = _promises([decoded], times, 9.7)
    assert [promise.held for promise in held] == [True] * (1 + len(share.VOCABULARIES))
    peaked = next(item for item in times if item.scale == share.PROMISED_SCALE)
    slower = [replace(peaked, mode="slow", median_us=301.0), *times]
    broken = _promises([replace(decoded, accept_ms=3.1)], slower, 9.7)
    assert [promise.held for promise in broken][:2] == [False, False]
    assert broken[1].note.startswith("slow")
    few = _promises([replace(decoded, rounds=19, accept_ms=9.0)], times, 9.7)[0]
    assert (few.status, few.note) == ("not measured", "19 rounds; it takes 20")


def test_a_run_reports_every_mode(
    tiny_package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(share, "VOCABULARIES", (300, 600))
    file = tmp_path / "report.json"
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"turns": ["over and over and over and over"]}\n')
    arguments = ["--package", str(tiny_package), "--prompts", str(prompts), "--json", str(file)]
    # A target as small as this is no measure: only what is reported is looked at.
    main(["share", *arguments, "--max-tokens", "24", "--quick", "--profile"])
    report = json.loads(file.read_text())
    decoded = {item["mode"]: item for item in report["figures"]["decoded"]}
    assert {mode.name for mode in MODES} <= decoded.keys()
    assert all(item["rounds"] > 0 and item["accept_ms"] > 0 for item in decoded.values())
    assert sum(item["drafted"] for item in decoded.values()) > 0
    # Random weights make flat rows: the nucleus is not in the list, the most likely token is.
    assert decoded["temperature 0.8, top-p 0.95"]["whole_rows"] > 0
    assert decoded["greedy"]["whole_rows"] == 0
    assert len(report["figures"]["random"]) == len(MODES) * 2 * len(share.SCALES)
    assert report["figures"]["run_ms"] > 0
    assert main(["share", *arguments, "--length", "0"]) == 2
