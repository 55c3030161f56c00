"""A day in seconds: the suite itself, small, on a real gateway; what it makes of what it saw."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest

from bench.__main__ import main
from bench.day import findings
from bench.day_clients import Kept, Told, Traffic
from bench.day_events import Act, Day, Event
from bench.day_packages import renamed
from bench.report import Findings
from bench.setup import Setup
from models.package import load_package


def day(*told: Told, events: tuple[Event, ...] = (), killed: tuple[Kept, ...] = ()) -> Findings:
    traffic = Traffic("http://nowhere", ("a", "b"), ("x",), "key")
    traffic.told = list(told)
    traffic.away, traffic.unkeyed = [(10.0, 12.0)], [(5.0, 6.0)]
    return findings(traffic, events, killed, {})


def broken_promises(found: Findings) -> list[str]:
    return [promise.name for promise in found.promises if promise.held is False]


def test_refusals_with_a_reason_are_as_it_should_be() -> None:
    found = day(
        Told("whole", 1.0, "answered"),
        Told("stream", 2.0, "refused", "loading"),
        Told("whole", 5.5, "refused", "invalid_api_key"),
        Told("stream", 9.0, "refused", "draining", seconds=1.5),
        Told("socket", 8.0, "refused", "closed with 1001", seconds=2.5),
        Told("socket", 8.0, "refused", "failed: the gateway is shutting down", seconds=2.5),
        Told("socket", 11.0, "away", "connection refused"),
        events=(Event("load", 1.0, 0.5),),
        killed=(Kept(0.3, came_back=True),),
    )
    assert broken_promises(found) == []
    assert found.figures["refused"]["loading"] == 1
    assert found.figures["unexplained"] == []


@pytest.mark.parametrize(
    ("at", "reason"),
    [
        (1.0, "server_error"),
        (11.0, "server_error"),
        (1.0, "invalid_api_key"),
        (7.0, "handshake 401"),
        (13.0, "draining"),
        (1.0, "cut"),
        (1.0, "failed: the device failed"),
        (1.0, "package_failed"),
    ],
)
def test_a_reason_that_nothing_explains_breaks_a_promise(at: float, reason: str) -> None:
    found = day(Told("whole", 0.5, "answered"), Told("whole", at, "refused", reason, seconds=0.1))
    assert broken_promises(found) == ["requests refused for what nobody did"]
    assert [each["reason"] for each in found.figures["unexplained"]] == [reason]


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


def test_pauses_are_what_loading_leaves_of_the_day(tiny_package: Path, tmp_path: Path) -> None:
    package = load_package(tiny_package)
    second = renamed(package, tmp_path / "again").path
    life = Day(Setup(package, ()), second, tmp_path, 100.0)
    acts = [Act(str(number), asyncio.Event().wait, loads=number < 3) for number in range(4)]
    life.traffic.started = time.monotonic()
    assert life.pause(acts) == pytest.approx(10.0), "never more than a tenth"
    life._load_seconds = 20.0
    assert life.pause(acts) == pytest.approx((100 - 60) / 5, abs=0.1)
    life._load_seconds = 40.0
    assert life.pause(acts) == pytest.approx(1.0), "and never less than a hundredth"


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
