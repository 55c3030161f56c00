"""The flags of the settings: every one has its help, its own default and a telling name."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest

from gateway.commands.options import HELP, add_setting_flags, settings_of
from gateway.settings import flag_fields


@pytest.fixture
def shown() -> str:
    parser = argparse.ArgumentParser(prog="outpace")
    add_setting_flags(parser)
    return re.sub(r"\s+", " ", parser.format_help())


def test_every_setting_has_one_help() -> None:
    assert sorted(HELP) == sorted(flag_fields())


@pytest.mark.parametrize(
    ("flag", "default"),
    [
        ("--temperature X", "auto"),
        ("--drain-seconds SECONDS", "20"),
        ("--allowed-origins ORIGINS", "none"),
        ("--insecure", "no"),
        ("--trees", "no"),
        ("--slots N", "4"),
        ("--threads N", "auto"),
        ("--device {auto,cpu,cuda,tensorrt}", "auto"),
        ("--speculation-policy {cost,fixed,ema-tiers,confidence,slo,off,auto}", "cost"),
        ("--speculation-tpot-ms MS", "none"),
        ("--speculation-pacing {none,even}", "none"),
        ("--log-level {debug,info,warning,error}", "info"),
    ],
)
def test_defaults_are_told_as_they_are_written(shown: str, flag: str, default: str) -> None:
    # The last mention: the first is the summary of all flags.
    _, _, told = shown.rpartition(f" {flag} ")
    assert re.match(r"[^()]*\(default: ([^)]*)\)", told).group(1) == default  # type: ignore[union-attr]


def test_package_may_be_given_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OUTPACE_CONFIG", raising=False)
    parser = argparse.ArgumentParser()
    add_setting_flags(parser)
    once = settings_of(parser.parse_args(["--package", "/a"]))
    assert (once.package, once.packages) == (Path("/a"), ())
    flags = ["--package", "/a", "--package", "/b", "--packages", "/c,/d"]
    several = settings_of(parser.parse_args(flags))
    assert (several.package, several.packages) == (Path("/a"), (Path("/b"), Path("/c"), Path("/d")))
