"""`outpace ps`, `load`, `unload` and `switch` against a running gateway."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from gateway.__main__ import main
from gateway.commands.top_view import packages_table
from tests.fake_engine import FakeEngine
from tests.fleet_support import furnish
from tests.http_serving import Served, serving
from tests.test_commands_top import console, said


async def command(served: Served, *arguments: str) -> int:
    return await asyncio.to_thread(main, [*arguments, "--url", served.url])


async def test_a_package_is_loaded_switched_to_and_unloaded(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with serving(None) as served:
        starts = await furnish(served.gateway, "a", "b")
        fleet = served.gateway.fleet
        assert await command(served, "load", "b", "--keep-alive", "60") == 0
        assert capsys.readouterr().out == "b: loaded, 0 MiB\n"
        assert (fleet.member("b").state, fleet.member("b").keep_alive) == ("loaded", 60)
        assert await command(served, "switch", "b") == 0
        assert capsys.readouterr().out == "b: loaded, the default\n"
        assert fleet.default is fleet.member("b")
        assert await command(served, "unload", "b") == 0
        assert capsys.readouterr().out == "b: unloaded\n"
        assert starts.engines[1].closed


async def test_what_is_there_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    async with serving(None) as served:
        await furnish(served.gateway, "a", "b")
        assert await command(served, "ps", "--json") == 0
        listed = json.loads(capsys.readouterr().out)
        assert [(each["id"], each["state"]) for each in listed] == [
            ("a", "loaded"),
            ("b", "unloaded"),
        ]
        assert await command(served, "ps") == 0
        printed = capsys.readouterr().out
        for part in ("a (default)", "loaded", "b", "unloaded", "always"):
            assert part in printed


async def test_what_is_piped_has_a_line_for_each_package(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    names = ["a" * 150, "b" * 150]
    async with serving(None) as served:
        await furnish(served.gateway, *names)
        assert await command(served, "ps") == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split()[:2] == ["package", "state"]
    assert [line.split()[0] for line in lines] == names
    assert all(line == line.rstrip() for line in (head, *lines))


async def test_why_something_is_refused_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    async with serving(None) as served:
        starts = await furnish(served.gateway, "a", "b")
        starts.errors.append(RuntimeError("no kernel"))
        assert await command(served, "load", "c") == 1
        assert "outpace load: The model 'c' does not exist here" in capsys.readouterr().err
        assert await command(served, "load", "b") == 1
        assert "could not be loaded" in capsys.readouterr().err


async def test_keys_come_from_the_environment_or_a_file(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    keys = tmp_path / "keys"
    keys.write_text("ann:first\nbob:second\n")
    monkeypatch.delenv("OUTPACE_API_KEY", raising=False)
    async with serving(FakeEngine(), api_keys_file=keys, admins=("ann",)) as served:
        assert await command(served, "ps") == 1
        assert "asks for a valid API key" in capsys.readouterr().err
        monkeypatch.setenv("OUTPACE_API_KEY", "second")
        assert await command(served, "unload", "tiny-test") == 1
        assert "may not load and unload" in capsys.readouterr().err
        assert await command(served, "load", "tiny-test", "--api-key-file", str(keys)) == 0
        assert await command(served, "ps", "--api-key-file", str(tmp_path / "none")) == 1
        assert "cannot be read: No such file" in capsys.readouterr().err
        monkeypatch.setenv("OUTPACE_API_KEY", "first")
        assert await command(served, "load", "tiny-test") == 0


def test_no_gateway_is_said_in_plain_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ps", "--url", "http://127.0.0.1:1"]) == 1
    assert capsys.readouterr().err.startswith("outpace ps: no gateway answers at ")


def test_a_failed_package_says_why() -> None:
    package = {
        "id": "a",
        "state": "failed",
        "default": True,
        "needs_bytes": 3 << 30,
        "memory_bytes": 0,
        "requests": 0,
        "waiting": 0,
        "idle_seconds": None,
        "keep_alive": 300,
        "failures": 5,
        "problem": "lost\x1b[2J",
    }
    made = console()
    made.print(packages_table([package]))
    text = said(made)
    for part in ("a (default)", "failed", "3.0 GiB", "300 s", "5", "lost"):
        assert part in text
    assert "\x1b[2J" not in text
