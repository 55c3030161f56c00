"""Calibrations that are kept: found again, checked against the machine, ignored where damaged."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import pytest

from gateway.engine.costs import cache as cache_module
from gateway.engine.costs.cache import CalibrationCache, Key, obtain, speed
from gateway.engine.costs.calibration import calibrate
from gateway.engine.costs.coefficients import Coefficients
from tests.test_cost_calibration import TRUTH, FakeMachine, empty_slots

KEY = Key("package", "CPUExecutionProvider", 2, "1.32.0", "a processor", 4096, 4)


def slower(factor: float) -> Coefficients:
    curve = tuple((tokens, factor * ms) for tokens, ms in TRUTH.curve)
    return Coefficients(
        curve, factor * TRUTH.per_row, factor * TRUTH.per_past, factor * TRUTH.per_work
    )


@pytest.fixture
def cache(tmp_path: Path) -> CalibrationCache:
    return CalibrationCache(tmp_path / "calibration")


def start(
    cache: CalibrationCache,
    monkeypatch: pytest.MonkeyPatch,
    truth: Coefficients = TRUTH,
    key: Key = KEY,
    fresh: bool = False,
) -> tuple[Any, FakeMachine]:
    machine = FakeMachine(truth)
    for name in ("calibrate", "check_points"):
        original = getattr(__import__("gateway.engine.costs.calibration", fromlist=[name]), name)
        monkeypatch.setattr(
            cache_module,
            name,
            lambda target, slots, original=original: original(target, slots, target.clock),
        )
    return obtain(machine, empty_slots(4, 4096), cache, key, fresh=fresh), machine


def test_a_second_start_measures_two_points(
    cache: CalibrationCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = start(cache, monkeypatch)
    second, machine = start(cache, monkeypatch)
    assert (first.cached, second.cached) == (False, True)
    assert second.measured_at == first.measured_at
    assert second.scaled == pytest.approx(1.0)
    assert len(set(machine.shapes)) == 2
    assert second.calibration.coefficients() == dataclasses.replace(
        first.calibration.coefficients(), **approximately(first.calibration.coefficients())
    )


def approximately(known: Coefficients) -> dict[str, Any]:
    return {
        "curve": tuple((tokens, pytest.approx(ms)) for tokens, ms in known.curve),
        "per_row": pytest.approx(known.per_row),
        "per_past": pytest.approx(known.per_past),
        "per_work": pytest.approx(known.per_work),
    }


@pytest.mark.parametrize(("factor", "cached"), [(1.2, True), (0.8, True), (1.4, False)])
def test_another_speed_scales_and_another_machine_is_measured(
    cache: CalibrationCache, monkeypatch: pytest.MonkeyPatch, factor: float, cached: bool
) -> None:
    start(cache, monkeypatch)
    found, _ = start(cache, monkeypatch, slower(factor))
    assert found.cached == cached
    assert found.scaled == pytest.approx(factor if cached else 1.0)
    assert found.calibration.coefficients().curve[0] == (2, pytest.approx(10.0 * factor))
    again, _ = start(cache, monkeypatch, slower(factor))
    assert again.scaled == pytest.approx(factor if cached else 1.0)


def test_one_point_that_is_off_is_enough() -> None:
    machine = FakeMachine(TRUTH)
    known = calibrate(machine, empty_slots(4, 4096), machine.clock)
    (two, ms), (wide, wide_ms) = known.points[0], known.points[6]
    assert speed(known, [(two, ms), (wide, 1.2 * wide_ms)]) == pytest.approx(1.2**0.5)
    assert speed(known, [(two, ms), (wide, 1.3 * wide_ms)]) is None


def test_fresh_measures_whatever_is_kept(
    cache: CalibrationCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(cache, monkeypatch)
    assert not start(cache, monkeypatch, fresh=True)[0].cached


@pytest.mark.parametrize(
    "change",
    [
        {"package": "another"},
        {"threads": 3},
        {"onnxruntime": "1.33.0"},
        {"processor": "another"},
        {"provider": "CUDAExecutionProvider"},
        {"context": 100},
        {"rows": 2},
        {"schema": 0},
    ],
)
def test_it_is_kept_for_what_it_depends_on(
    cache: CalibrationCache, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]
) -> None:
    start(cache, monkeypatch)
    assert cache.load(dataclasses.replace(KEY, **change)) is None
    assert cache.load(KEY) is not None


def damaged(document: dict[str, Any], part: str) -> bytes:
    first = document["points"][0]
    documents: dict[str, Any] = {
        "no points": {**document, "points": []},
        "a negative time": {**document, "points": [[*first[:4], -1.0]]},
        "no number": {**document, "points": [[*first[:4], float("nan")]]},
        "a shape with words": {**document, "points": [["1", *first[1:]]]},
        "no rows": {**document, "points": [[0, *first[1:]]]},
        "another key": {**document, "key": {**document["key"], "threads": 99}},
        "a list": [document],
        "no time": {**document, "measured_at": "yesterday"},
        "no checks": {name: each for name, each in document.items() if name != "checks"},
    }
    return json.dumps(documents[part]).encode() if part in documents else b'{"key": '


@pytest.mark.parametrize(
    "part",
    [
        "cut off",
        "no points",
        "a negative time",
        "no number",
        "a shape with words",
        "no rows",
        "another key",
        "a list",
        "no time",
        "no checks",
    ],
)
def test_damaged_files_are_ignored_and_written_again(
    cache: CalibrationCache, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, part: str
) -> None:
    start(cache, monkeypatch)
    (path,) = (tmp_path / "calibration").iterdir()
    path.write_bytes(damaged(json.loads(path.read_bytes()), part))
    assert cache.load(KEY) is None
    assert not start(cache, monkeypatch)[0].cached
    assert start(cache, monkeypatch)[0].cached
    assert [each.suffix for each in path.parent.iterdir()] == [".json"]


def test_what_a_killed_writer_left_is_taken_away_and_a_living_one_is_not(
    cache: CalibrationCache, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    directory = tmp_path / "calibration"
    directory.mkdir()
    old, new = directory / "old.partial", directory / "new.partial"
    for path in (old, new):
        path.write_text("{")
    os.utime(old, (0, 0))
    start(cache, monkeypatch)
    assert not old.exists()
    assert new.exists()


def test_a_directory_that_cannot_be_written_costs_only_the_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    taken = tmp_path / "calibration"
    taken.write_text("a file")
    found, _ = start(CalibrationCache(taken), monkeypatch)
    assert not found.cached
