"""`outpace check`: one line for each thing, and an exit status."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gateway.__main__ import main
from gateway.commands import check
from models import memory
from models.package import Package
from tests.fake_engine import FakeEngine
from tests.fleet_support import renamed
from tests.http_serving import serving

ROOT = Path(__file__).parent.parent


@pytest.fixture
def config(tiny_package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OUTPACE_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "outpace.toml"
    path.write_text(f'package = "{tiny_package}"\nport = 0\n')
    path.chmod(0o644)
    return path


def checked(
    capsys: pytest.CaptureFixture[str], config: Path, *arguments: str
) -> tuple[int, dict[str, str]]:
    """The exit status, and what is said by what it is about, `ok` or `FAIL` in front."""
    status = main(["check", "--config", str(config), *arguments])
    lines = capsys.readouterr().out.splitlines()
    return status, {line.split()[1]: f"{line.split()[0]} {line[16:]}" for line in lines}


def test_a_good_configuration(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, found = checked(capsys, config)
    assert status == 0
    assert list(found) == [
        *("settings", "keys", "tls", "address", "package", "drafter", "memory", "cache")
    ]
    assert all(told.startswith("ok ") for told in found.values())
    assert found["settings"] == f"ok read from {config}"
    assert found["package"].endswith("whole (sizes compared)")
    assert "needed" in found["memory"]
    assert checked(capsys, config, "--digests")[1]["package"].endswith("whole (every file read)")


def test_settings_that_cannot_be_read_end_it(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config.write_text("slot = 1\n")
    status, found = checked(capsys, config)
    assert (status, list(found)) == (1, ["settings"])
    assert "Did you mean 'slots'?" in found["settings"]


def test_keys_that_everybody_can_read(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = tmp_path / "keys"
    keys.write_text("ann:secret\n")
    for mode, expected in (
        (0o644, f"FAIL {keys} has API keys and every user can read it (mode 0644);"),
        (0o660, f"FAIL {keys} has API keys and its group can change it (mode 0660);"),
        (0o640, f"ok {keys} has API keys, mode 0640"),
    ):
        keys.chmod(mode)
        status, found = checked(capsys, config, "--api-keys-file", str(keys))
        assert found["files"].startswith(expected)
        assert found["keys"] == "ok 1 in use"
        assert status == expected.startswith("FAIL")
    keys.write_text("")
    status, found = checked(capsys, config, "--api-keys-file", str(keys))
    assert status == 1
    assert found["keys"].startswith(f"FAIL the file of API keys {keys} has no keys")


def test_keys_in_a_file_of_settings(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config.write_text(config.read_text() + 'api_keys = ["secret"]\n')
    status, found = checked(capsys, config)
    assert status == 1
    assert found["files"].startswith(f"FAIL {config} has API keys and every user can read it")
    assert "secret" not in str(found)


def test_an_open_address_without_keys(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, found = checked(capsys, config, "--host", "0.0.0.0")
    assert status == 1
    assert "no API keys are set" in found["keys"]
    status, found = checked(capsys, config, "--host", "0.0.0.0", "--insecure")
    assert (status, found["keys"]) == (0, "ok none, and --insecure says that this is meant")


def test_tls_files(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    certificate = tmp_path / "certificate.pem"
    certificate.write_text("no certificate")
    certificate.chmod(0o600)
    status, found = checked(capsys, config, "--tls-certificate", str(certificate))
    assert status == 1
    assert found["tls"].startswith("FAIL TLS: ")
    assert found["files"] == f"ok {certificate} has the TLS key, mode 0600"


def test_a_port_that_something_else_has(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        # It does not listen: nobody answers there.
        port = taken.getsockname()[1]
        status, found = checked(capsys, config, "--port", str(port))
    assert status == 1
    assert f"port {port} is in use" in found["address"]


async def test_a_gateway_that_runs_already_is_no_problem(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with serving(FakeEngine()) as served:
        port = served.url.rpartition(":")[2]
        # In a process of its own: this one's loop is what answers.
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "gateway", "check"),
            *("--config", str(config), "--port", port),
            stdout=asyncio.subprocess.PIPE,
            cwd=ROOT,
        )
        told, _ = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, told.decode()
    assert f"a gateway listens on 127.0.0.1:{port} already" in told.decode()


def test_a_package_that_is_broken(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, found = checked(capsys, config, "--package", str(tmp_path))
    assert status == 1
    assert "package.json is missing" in found["package"]
    assert "memory" not in found


def test_each_of_several_packages_is_looked_at(
    config: Path, package: Package, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = tmp_path / "more"
    for name in ("one", "two"):
        renamed(package, more / name, name)
    arguments = ["check", "--config", str(config), "--packages", str(more)]

    def packages() -> list[str]:
        lines = capsys.readouterr().out.splitlines()
        return [f"{line.split()[0]} {line[16:]}" for line in lines if line.split()[1] == "package"]

    assert main(arguments) == 0
    names = ("tiny", "one", "two")
    for told, name in zip(packages(), names, strict=True):
        assert told.startswith(f"ok {name} in ")
    tokenizer = more / "two" / package.manifest.tokenizer
    tokenizer.unlink()
    assert main(arguments) == 1
    assert [told.split()[0] for told in packages()] == ["ok", "ok", "FAIL"]
    renamed(package, tmp_path / "same", "one")
    tokenizer.hardlink_to(package.file(package.manifest.tokenizer))
    assert main([*arguments[:-1], f"{more},{tmp_path / 'same'}"]) == 1
    assert "two are called 'one'" in packages()[-1]


def test_a_drafter_that_the_package_has_not(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, found = checked(capsys, config, "--speculation-drafter", "medusa")
    assert status == 1
    assert found["drafter"].startswith("FAIL ")


def test_memory_that_is_not_there(
    config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "available_on", lambda *, gpu: 1 << 20)
    status, found = checked(capsys, config)
    assert status == 1
    assert "only 1 MiB available" in found["memory"]
    status, found = checked(capsys, config, "--no-check-memory")
    assert status == 0
    assert "1 MiB available" in found["memory"]


def test_memory_that_nobody_knows(
    config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "available_bytes", lambda: None)
    status, found = checked(capsys, config)
    assert status == 0
    assert "does not say how much memory it has" in found["memory"]


def test_directories_that_cannot_be_written(
    config: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = tmp_path / "ngrams"
    assert checked(capsys, config, "--ngram-store", str(store))[0] == 0
    monkeypatch.setattr(check.os, "access", lambda path, mode: False)
    status, found = checked(capsys, config, "--ngram-store", str(store))
    assert status == 1
    assert found["n-grams"] == f"FAIL {store} cannot be written"
    assert found["cache"] == f"ok {tmp_path / 'cache'} cannot be written"


def test_the_watchdog_of_a_service_with_this_file(
    config: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(check, "SYSTEM_PLACES", (tmp_path / "system",))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "user"))
    assert "watchdog" not in checked(capsys, config)[1]
    unit = tmp_path / "user" / "systemd" / "user" / "outpace.service"
    unit.parent.mkdir(parents=True)

    def found(watchdog: str, *arguments: str, serves: Path = config) -> tuple[int, str | None]:
        unit.write_text(f"[Service]\nExecStart=x --config {serves}\nWatchdogSec={watchdog}\n")
        status, lines = checked(capsys, config, *arguments)
        return status, lines.get("watchdog")

    assert found("3min") == (0, f"ok 180 s in {unit}, after stuck runs end")
    status, told = found("2min")
    assert status == 1
    assert told is not None
    assert told.startswith(f"FAIL {unit}: WatchdogSec=120 may kill the gateway 150 s into a run")
    assert found("2min", "--stuck-seconds", "60")[0] == 0
    status, told = found("3min", "--stuck-seconds", "none")
    assert (status, "stuck_seconds is none" in str(told)) == (1, True)
    assert found("0") == (0, f"ok none in {unit}: nothing ends a gateway that hangs")
    assert found("2min", serves=tmp_path / "another.toml") == (0, None)


def test_it_loads_nothing_heavy(config: Path) -> None:
    """It may stand before every start: it must not double its time."""
    code = (
        "import sys; from gateway.__main__ import main;"
        f"status = main(['check', '--config', {str(config)!r}]);"
        "heavy = {'onnxruntime', 'torch', 'transformers'} & set(sys.modules);"
        "sys.exit(f'loaded {heavy}' if heavy or status else 0)"
    )
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr + done.stdout
    # About half a second on an idle machine; this one may be busy.
    assert time.monotonic() - started < 15
