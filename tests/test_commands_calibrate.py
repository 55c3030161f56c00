"""What calibration prints, and what it means for drafts."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from gateway.__main__ import main
from gateway.commands.calibrate import Figures, as_json, meaning, plot, tables
from gateway.engine.costs.break_even import break_even, expected_tau
from gateway.engine.costs.calibration import Calibration
from gateway.engine.costs.shape import RunShape

FIGURES = Figures(
    Calibration(
        points=(
            (RunShape(1, 2), 10.0),
            (RunShape(1, 3), 15.0),
            (RunShape(1, 5), 52.0),
            (RunShape(1, 2, 1000, 2000), 12.0),
            (RunShape(2, 4), 34.5),
        ),
        checks=((RunShape(1, 4), 25.0),),
    ),
    drafters={"eagle3": {1: 2.0, 2: 5.0}},
    problems={"mtp": "its graph is broken"},
    overhead=0.0,
)


@pytest.mark.parametrize(("alpha", "length", "tau"), [(0.5, 2, 1.75), (1.0, 3, 4.0), (0.0, 4, 1)])
def test_a_rounds_tokens_follow_the_formula(alpha: float, length: int, tau: float) -> None:
    assert expected_tau(alpha, length) == pytest.approx(tau)


@pytest.mark.parametrize(
    ("ratio", "length", "alpha"),
    [(0.9, 3, 0.0), (1.0, 3, 0.0), (1.75, 2, 0.5), (1.5, 1, 0.5), (3.0, 2, 1.0), (3.01, 2, None)],
)
def test_drafts_break_even_where_their_tokens_pay_for_their_time(
    ratio: float, length: int, alpha: float | None
) -> None:
    assert break_even(ratio, length) == (None if alpha is None else pytest.approx(alpha, abs=1e-9))


def test_tables_show_what_was_measured_and_what_was_fitted() -> None:
    by_width, by_rows, by_past, checked, drafters, pays = tables(FIGURES)
    assert by_width.rows[1] == ("1", "3", "0", "15.000", "15.000", "+0.0")
    assert len(by_width.rows) == 3
    assert by_rows.rows == [("2", "4", "0", "34.500", "34.500", "+0.0")]
    assert by_past.rows[0][:4] == ("1", "2", "1000", "12.000")
    assert checked.rows == [("1", "4", "0", "25.000", "33.500", "+34.0")]
    assert drafters.rows == [("eagle3", "2.000", "5.000")]
    # A second token is free: a lone one is padded to two. A third makes it 1.5 times as dear:
    # 1 + a + a^2 = 1.5; with a draft of 5 ms, 1 + a + a^2 = 2.
    assert pays.header == ("length", "ngram", "eagle3")
    assert pays.rows[:3] == [("1", "0.00", "0.20"), ("2", "0.37", "0.62"), ("3", "0.88", "")]
    assert pays.rows[3][1] == "never"
    lines = by_rows.lines()
    assert len({len(line) for line in lines[1:]}) == 1


def test_it_says_what_the_coefficients_mean() -> None:
    said = "\n".join(meaning(FIGURES))
    assert "A row more costs 1.000 ms, 1000 cached tokens 2.000 ms" in said
    assert "off by 34.0 % at most" in said
    assert "mtp could not be measured: its graph is broken" in said


def test_programs_get_the_same() -> None:
    written = json.loads(json.dumps(as_json(FIGURES)))
    assert written["points"][0] == {
        "rows": 1,
        "tokens": 2,
        "past": 0,
        "work": 0,
        "tree": False,
        "ms": 10.0,
    }
    assert written["coefficients"]["per_row"] == pytest.approx(1.0)
    assert written["break_even"]["1"] == {"ngram": 0.0, "eagle3": pytest.approx(0.2)}
    assert written["break_even"]["4"] == {"ngram": "never", "eagle3": None}


def test_the_plot_has_a_line_for_each_way_to_run() -> None:
    root = ElementTree.fromstring(plot(FIGURES))
    said = {element.text for element in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"1 row, 0 cached", "1 row, 1000 cached", "2 rows, 0 cached", "eagle3"} <= said


def test_the_doctor_measures_a_package(
    capsys: pytest.CaptureFixture[str],
    tiny_package: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OUTPACE_CACHE", str(tmp_path))
    out = tmp_path / "plot.svg"
    common = ["doctor", "--package", str(tiny_package), "--port", "0", "--calibrate"]
    assert main([*common, "--plot", str(out)]) == 0
    said = capsys.readouterr().out
    for title in ("A run of one row", "By rows", "By cached tokens", "From which acceptance"):
        assert title in said
    assert "serve would run" in said
    ElementTree.fromstring(out.read_text())
    assert len(list((tmp_path / "calibration").iterdir())) == 1
    assert main([*common, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["calibration"]["overhead_ms"] > 0
    assert found["calibration"]["points"]


def test_the_doctor_does_not_measure_what_cannot_run(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["doctor", "--json", "--calibrate", "--package", str(tmp_path)]) == 1
    assert "calibration" not in json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("calibrate", [True, False])
def test_a_plot_that_cannot_be_made_is_an_error(
    capsys: pytest.CaptureFixture[str],
    tiny_package: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    calibrate: bool,
) -> None:
    monkeypatch.setenv("OUTPACE_CACHE", str(tmp_path))
    options = ["--calibrate"] if calibrate else []
    path = tmp_path / "missing" / "plot.svg"
    command = ["doctor", "--package", str(tiny_package), "--port", "0", "--plot", str(path)]
    assert main([*command, *options]) != 0
    said = capsys.readouterr().err
    assert ("cannot be written" if calibrate else "--plot needs --calibrate") in said
