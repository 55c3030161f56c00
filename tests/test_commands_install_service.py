"""`outpace install-service` and `uninstall-service`: what they say, write, and refuse."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gateway.__main__ import main
from gateway.commands import install_service, uninstall_service
from gateway.commands.install_service import carry_out, is_changed
from gateway.installing import machine
from gateway.installing.plan import Run, Write
from gateway.installing.units import is_ours, signed
from models.errors import UserError


@pytest.fixture(autouse=True)
def anywhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The clone may lie in a directory for temporary files; a service could not."""
    monkeypatch.setattr(machine, "_SHARED", ())
    monkeypatch.setattr(machine.sys, "prefix", "/usr")
    monkeypatch.setattr(machine.sys, "base_prefix", "/usr")
    monkeypatch.setattr(machine, "ROOT", Path("/usr/lib/outpace"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def test_below_a_directory_it_writes_everything(
    tiny_package: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "image"
    arguments = ["install-service", "--package", str(tiny_package), "--root", str(root), "--yes"]
    assert main(arguments) == 0
    told = capsys.readouterr().out
    expected = {
        "etc/outpace/keys": 0o600,
        "etc/outpace/outpace.toml": 0o640,
        "etc/systemd/system/outpace.service": 0o644,
        "etc/systemd/system/outpace.socket": 0o644,
        "etc/sysusers.d/outpace.conf": 0o644,
        "etc/tmpfiles.d/outpace.conf": 0o644,
    }
    found = {
        str(path.relative_to(root)): path.stat().st_mode & 0o777
        for path in root.rglob("*")
        if path.is_file()
    }
    assert found == expected
    for name in expected:
        assert f"write  {root / name}" in told
    assert "run " not in told
    service = (root / "etc/systemd/system/outpace.service").read_text()
    assert is_ours(service)
    keys = (root / "etc/outpace/keys").read_text()
    # Again: what is as it was written is written anew, settings and keys are kept.
    assert main(arguments) == 0
    assert f"keep   {root / 'etc/outpace/keys'}" in capsys.readouterr().out
    assert (root / "etc/outpace/keys").read_text() == keys


def test_what_was_changed_by_hand_is_not_overwritten(
    tiny_package: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [
        *("install-service", "--package", str(tiny_package)),
        *("--root", str(tmp_path), "--yes"),
    ]
    assert main(arguments) == 0
    unit = tmp_path / "etc/systemd/system/outpace.service"
    changed = unit.read_text() + "# mine\n"
    unit.write_text(changed)
    (tmp_path / "etc/outpace/outpace.toml").write_text("slots = 1\n")
    capsys.readouterr()
    assert main(arguments) == 1
    error = capsys.readouterr().err
    assert f"changed by hand, and not overwritten without --force: {unit}." in error
    assert unit.read_text() == changed
    assert main([*arguments, "--force"]) == 0
    assert is_ours(unit.read_text())
    assert (tmp_path / "etc/outpace/outpace.toml").read_text() == "slots = 1\n"


def test_settings_that_the_watchdog_does_not_go_with_are_warned_of(
    tiny_package: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [
        *("install-service", "--package", str(tiny_package)),
        *("--root", str(tmp_path), "--yes"),
    ]

    def warned() -> list[str]:
        assert main(arguments) == 0
        lines = capsys.readouterr().out.splitlines()
        return [line.removeprefix("warning: ") for line in lines if line.startswith("warning: ")]

    assert warned() == []
    config = tmp_path / "etc/outpace/outpace.toml"
    assert warned() == []
    config.write_text("stuck_seconds = 600\n")
    assert warned() == [
        "WatchdogSec=180 may kill the gateway 225 s into a run that hangs, before it is sure to"
        " have ended by itself, after stuck_seconds and stuck_exit_seconds (660 s together): set"
        " WatchdogSec=552 or more. Set it by `systemctl edit outpace`."
    ]
    drop_in = tmp_path / "etc/systemd/system/outpace.service.d/override.conf"
    drop_in.parent.mkdir()
    drop_in.write_text("[Service]\nWatchdogSec=10min\n")
    assert warned() == []
    config.write_text("slot = 1\n")
    (told,) = warned()
    assert told.startswith("the service will not start with its settings: ")


def test_a_dry_run_needs_not_look_where_it_may_not(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(path: Path) -> bool:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "exists", forbidden)
    told = install_service.described(Write(Path("/etc/outpace/keys"), "", 0o600, keep=True))
    assert told == "keep   /etc/outpace/keys (mode 0600)"


def test_a_dry_run_says_all_and_does_nothing(
    tiny_package: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(install_service, "carry_out", None)
    assert main(["install-service", "--package", str(tiny_package), "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "run    systemctl enable --now outpace.socket outpace.service"
    assert lines.index("run    systemd-sysusers /etc/sysusers.d/outpace.conf") < lines.index(
        "run    systemd-tmpfiles --create /etc/tmpfiles.d/outpace.conf"
    )
    assert main(["install-service", "--user", "--package", str(tiny_package), "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "run    systemctl --user enable --now outpace.socket outpace.service"
    assert any("/config/systemd/user/outpace.service" in line for line in lines)


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main([*arguments]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"outpace {arguments[0]}: ")
    assert error.count("\n") == 1
    return error


def test_refusals(
    tiny_package: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install = ("install-service", "--package", str(tiny_package))
    assert "no package at" in refused(capsys, "install-service", "--package", str(tmp_path))
    assert "--port must be from 1" in refused(capsys, *install, "--port", "0")
    assert "--tls-key needs" in refused(capsys, *install, "--tls-key", "/k")
    missing = refused(capsys, *install, "--tls-certificate", "/no/such")
    assert "/no/such is no file" in missing
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "only root can install a service for the machine" in refused(capsys, *install, "--yes")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert "--user as root" in refused(capsys, *install, "--user", "--yes")
    monkeypatch.setattr(install_service, "require_running", lambda user, environment: None)
    assert "nobody can be asked here: pass --yes" in refused(capsys, *install)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "systemd is not installed here" in refused(capsys, *install, "--yes")


def test_a_machine_without_a_running_systemd_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = tmp_path / "nowhere"
    real = Path.is_dir

    def is_dir(path: Path) -> bool:
        return False if str(path) == "/run/systemd/system" else real(path)

    monkeypatch.setattr(Path, "is_dir", is_dir)
    with pytest.raises(UserError, match="this machine was not started by systemd"):
        machine.require_running(False, {})
    monkeypatch.setattr(Path, "is_dir", lambda path: real(path) or "system" in str(path))
    machine.require_running(False, {})
    monkeypatch.setattr(
        Path, "is_dir", lambda path: True if str(path) == "/run/systemd/system" else real(path)
    )
    for environment in ({}, {"XDG_RUNTIME_DIR": str(nowhere)}):
        with pytest.raises(UserError, match="no service manager of yours runs here"):
            machine.require_running(True, environment)


def test_an_old_systemd_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "systemctl"
    fake.write_text("#!/bin/sh\necho 'systemd 241 (241)'\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="systemd 241 is too old: the units need 249"):
        machine.systemd_version()
    fake.write_text("#!/bin/sh\necho 'systemd 255 (255.4-1ubuntu8)'\n")
    assert machine.systemd_version() == 255


def test_a_file_is_written_whole_and_private_from_the_start(tmp_path: Path) -> None:
    path = tmp_path / "a" / "keys"
    carry_out(Write(path, "secret\n", 0o600))
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("secret\n", 0o600)
    carry_out(Write(path, "other\n", 0o600, keep=True))
    assert path.read_text() == "secret\n"
    assert [each.name for each in path.parent.iterdir()] == ["keys"]
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(UserError, match="cannot be written: "):
        carry_out(Write(blocked / "below", "x"))


def test_a_command_that_fails_is_named_with_what_it_said() -> None:
    carry_out(Run(("true",)))
    with pytest.raises(UserError, match=r"`sh -c echo no >&2; exit 3` failed with status 3: no"):
        carry_out(Run(("sh", "-c", "echo no >&2; exit 3")))
    with pytest.raises(UserError, match="no-such-program cannot be run"):
        carry_out(Run(("no-such-program",)))


def test_what_counts_as_changed(tmp_path: Path) -> None:
    path = tmp_path / "unit"
    assert not is_changed(Write(path, ""))
    path.write_text(signed("x\n"))
    assert not is_changed(Write(path, ""))
    path.write_text("x\n")
    assert is_changed(Write(path, ""))
    assert not is_changed(Write(path, "", keep=True))
    path.write_bytes(b"\xff")
    assert is_changed(Write(path, ""))
    path.unlink()
    path.symlink_to("/no/such/file")
    assert is_changed(Write(path, ""))


def test_nothing_to_take_away(capsys: pytest.CaptureFixture[str]) -> None:
    assert "no service of Outpace is installed here" in refused(
        capsys, "uninstall-service", "--user"
    )


def test_taking_away_says_what_and_keeps_what_was_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    units = tmp_path / "config" / "systemd" / "user"
    units.mkdir(parents=True)
    (units / "outpace.service").write_text(signed("x\n"))
    (units / "outpace.socket").write_text("mine\n")
    assert main(["uninstall-service", "--user", "--dry-run"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "run    systemctl --user disable --now outpace.socket outpace.service",
        f"remove {units / 'outpace.socket'}",
        f"remove {units / 'outpace.service'}",
        "run    systemctl --user daemon-reload",
    ]
    ran: list[list[str]] = []
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(uninstall_service, "require_running", lambda user, environment: None)
    monkeypatch.setattr(uninstall_service, "run_command", ran.append)
    error = refused(capsys, "uninstall-service", "--user", "--yes")
    assert f"not removed without --force: {units / 'outpace.socket'}" in error
    assert ran == []
    assert main(["uninstall-service", "--user", "--yes", "--force"]) == 0
    assert list(units.iterdir()) == []
    assert [command[2] for command in ran] == ["disable", "daemon-reload"]
