"""With which status serve ends: a service manager tries again what another time may mend, and only
that."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.commands.statuses import FAILED, MISCONFIGURED, STAYS_WRONG, of_serve
from models.errors import UserError
from models.usage import USAGE

ROOT = Path(__file__).parent.parent
UNITS = sorted((ROOT / "systemd").rglob("outpace.service.in"))


def ended(*arguments: str, environment: dict[str, str] | None = None) -> tuple[int, str]:
    """The status of the process, and its last line."""
    done = subprocess.run(
        [sys.executable, "-m", "gateway", "serve", *arguments],
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stderr.splitlines()[-1]


def file_of(directory: Path, text: str) -> Path:
    file = directory / "outpace.toml"
    file.write_text(text)
    return file


MISTAKES: dict[str, tuple[Callable[[Path], tuple[str, ...]], str]] = {
    "a value": (
        lambda tmp: ("--config", str(file_of(tmp, "slots = 0\n"))),
        "outpace.toml: slots must be from 1 to 64, not 0",
    ),
    "a flag's value": (lambda tmp: ("--port", "many"), "--port must be a whole number"),
    "a key": (
        lambda tmp: ("--config", str(file_of(tmp, "slot = 1\n"))),
        "unknown setting 'slot'. Did you mean 'slots'?",
    ),
    "the file": (lambda tmp: ("--config", str(file_of(tmp, "slots ="))), "is not valid TOML"),
    "no file": (lambda tmp: ("--config", str(tmp / "none")), "cannot read"),
    "keys": (
        lambda tmp: ("--port", "0", "--api-keys-file", str(tmp / "none")),
        "the file of API keys",
    ),
    "a certificate": (
        lambda tmp: ("--port", "0", "--tls-certificate", str(tmp / "none")),
        "TLS: ",
    ),
    "a package": (
        lambda tmp: ("--port", "0", "--package", str(tmp / "none")),
        "no package at",
    ),
    "no keys": (lambda tmp: ("--port", "0", "--host", "0.0.0.0"), "no API keys are set"),
    "a host": (lambda tmp: ("--host", "a..b", "--port", "0", "--insecure"), "this is no host name"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_what_somebody_has_to_change(mistake: str, tmp_path: Path) -> None:
    arguments, told = MISTAKES[mistake]
    status, line = ended(*arguments(tmp_path))
    assert (status, told in line) == (MISCONFIGURED, True), line
    assert MISCONFIGURED == os.EX_CONFIG == 78


def test_a_variable() -> None:
    for environment in ({"OUTPACE_SLOTS": "many"}, {"OUTPACE_SLOT": "1"}):
        status, line = ended(environment=environment)
        assert (status, next(iter(environment)) in line) == (MISCONFIGURED, True)


def test_wrong_flags() -> None:
    status, line = ended("--frobnicate")
    assert (status, line) == (
        USAGE,
        "outpace serve: there is no flag --frobnicate. Help: outpace serve --help",
    )


def test_a_port_in_use_may_be_free_another_time(tiny_package: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        status, line = ended("--package", str(tiny_package), "--port", port)
    assert (status, f"port {port} is in use" in line) == (FAILED, True)


def test_memory_may_be_there_another_time(tiny_package: Path) -> None:
    """As of a machine whose memory others have now."""
    script = (
        "import sys; from models import memory; memory.available_bytes = lambda: 1 << 20;"
        " from gateway.__main__ import main; sys.exit(main(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "serve", "--port", "0", "--package", str(tiny_package)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, "the package needs" in done.stderr) == (FAILED, True), done.stderr


@pytest.mark.parametrize("code", ["cannot_listen", "out_of_memory", "device_unavailable", "x"])
def test_what_is_not_known_to_stay_wrong_is_tried_again(code: str) -> None:
    assert of_serve(UserError("no.", code=code)) == FAILED


@pytest.mark.parametrize("code", sorted(STAYS_WRONG))
def test_every_code_that_stays_wrong_is_one_that_is_raised(code: str) -> None:
    sources = "".join(
        file.read_text() for part in ("gateway", "models") for file in (ROOT / part).rglob("*.py")
    )
    assert re.search(rf'code(=|\s*=\s*)"{code}"|else "{code}"', sources)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.parent.name)
def test_the_units_know_both_statuses(unit: Path) -> None:
    lines = unit.read_text().splitlines()
    assert f"RestartPreventExitStatus={USAGE} {MISCONFIGURED}" in lines
    assert "Restart=on-failure" in lines
