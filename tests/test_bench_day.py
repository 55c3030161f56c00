"""A day in seconds: the suite itself, small, on a real gateway; what it makes of what it saw."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.__main__ import main
from bench.day import findings
from bench.day_clients import Kept, Told, Traffic
from bench.day_events import Event
from bench.day_packages import renamed
from bench.report import Findings
from models.package import load_package


def day(*told: Told, events: tuple[Event, ...] = (), killed: tuple[Kept, ...] = ()) -> Findings:
    traffic = Traffic("http://nowhere", ("a", "b"), ("x",), "key")
    traffic.told = list(told)
    traffic.away = [(10.0, 12.0)]
    return findings(traffic, events, killed, {})


def broken_promises(found: Findings) -> list[str]:
    return [promise.name for promise in found.promises if promise.held is False]


def test_refusals_with_a_reason_are_as_it_should_be() -> None:
    found = day(
        Told("whole", 1.0, "answered"),
        Told("stream", 2.0, "refused", "loading"),
        Told("socket", 11.0, "away", "connection refused"),
        events=(Event("load", 1.0, 0.5),),
        killed=(Kept(0.3, came_back=True),),
    )
    assert broken_promises(found) == []
    assert found.figures["refused"] == {"loading": 1}


def test_what_breaks_off_is_broken() -> None:
    found = day(
        Told("whole", 1.0, "broken", "ServerDisconnectedError"),
        Told("socket", 15.0, "away", "connection refused"),
        events=(Event("switch", 1.0, 0.5, "it does not fit"),),
        killed=(Kept(0.3, came_back=True), Kept(0.4, came_back=False, problem="no")),
    )
    assert broken_promises(found) == [
        "requests that broke off without a reason",
        "connections refused but while it restarted",
        "things that could not be done",
        "requests answered",
        "killed gateways that came back whole",
    ]
    assert found.promises[0].note == "whole at 1.0 s: ServerDisconnectedError"


def test_the_second_package_is_the_first_under_another_name(
    tiny_package: Path, tmp_path: Path
) -> None:
    first = load_package(tiny_package)
    second = renamed(first, tmp_path / "second")
    assert second.manifest.name == first.manifest.name + "-again"
    assert second.manifest.files == first.manifest.files


def test_a_day_on_the_tiny_package(
    tiny_package: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "day.json"
    arguments = ["--seconds", "10", "--clients", "2", "--kills", "2", "--json", str(out)]
    status = main(["day", "--package", str(tiny_package), *arguments])
    printed = capsys.readouterr().out
    assert status == 0, printed
    report = json.loads(out.read_text())
    assert report["held"]
    assert report["figures"]["outcomes"]["answered"] > 20
    assert "broken" not in report["figures"]["outcomes"]
    names = [event["name"] for event in report["figures"]["events"]]
    assert names == [
        "load the second",
        "unload it for lack of use",
        "switch to it",
        "switch back",
        "load the default anew",
        "change the keys",
        "drain and start again",
    ]
    # That the keys were changed, and that it drained, was seen by the clients.
    assert report["figures"]["refused"].keys() & {"invalid_api_key", "handshake 401"}
    assert [kept["came_back"] for kept in report["figures"]["kills"]] == [True, True]
