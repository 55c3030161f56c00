"""What an installed unit and its drop-ins say of the watchdog."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.installing.watchdogs import UNIT, read_unit, seconds, user_places

TEXT = """[Unit]
WatchdogSec=7
[Service]
ExecStart=/usr/bin/python3 -P -m gateway serve \\
    --config /etc/outpace/outpace.toml
# WatchdogSec=9
WatchdogSec=2min
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90", 90.0),
        ("2min", 120.0),
        ("1min 30s", 90.0),
        ("1h30m", 5400.0),
        ("1.5 hours", 5400.0),
        ("500ms", 0.5),
        ("2 seconds", 2.0),
        ("0", None),
        ("", None),
        ("infinity", None),
        ("soon", None),
        ("5 parsec", None),
    ],
)
def test_times(text: str, expected: float | None) -> None:
    assert seconds(text) == expected


def put(place: Path, name: str, text: str) -> None:
    path = place / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_unit_and_its_drop_ins(tmp_path: Path) -> None:
    places = etc, run = tmp_path / "etc", tmp_path / "run"
    assert read_unit(places) is None
    put(run, UNIT, TEXT)
    unit = read_unit(places)
    assert unit is not None
    assert (unit.path, unit.config, unit.watchdog) == (
        run / UNIT,
        Path("/etc/outpace/outpace.toml"),
        120.0,
    )
    # What stands first hides the others of its name; of several names the last one counts.
    put(etc, UNIT, TEXT.replace("2min", "3min"))
    put(run, f"{UNIT}.d/a.conf", "[Service]\nWatchdogSec=5\n")
    put(etc, f"{UNIT}.d/a.conf", "[Service]\nNice=1\n")
    unit = read_unit(places)
    assert unit is not None
    assert (unit.path, unit.watchdog) == (etc / UNIT, 180.0)
    put(run, f"{UNIT}.d/b.conf", "[Service]\nWatchdogSec=6\n")
    put(run, f"{UNIT}.d/c.conf", "[Service]\nExecStart=\nExecStart=serve --config=/x.toml\n")
    unit = read_unit(places)
    assert unit is not None
    assert (unit.config, unit.watchdog) == (Path("/x.toml"), 6.0)
    # What will be written, under the drop-ins that are there.
    unit = read_unit(places, "[Service]\nWatchdogSec=1\n")
    assert unit is not None
    assert unit.watchdog == 6.0


def test_a_user_s_units_come_before_those_of_all_users(tmp_path: Path) -> None:
    first, *others = user_places(tmp_path)
    assert first == tmp_path / "systemd" / "user"
    assert Path("/etc/systemd/user") in others
