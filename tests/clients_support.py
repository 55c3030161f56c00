"""Clients that nobody here wrote, each in an environment of its own: they pin what they need.

An environment is made once and kept in the cache, by the content of what defines it.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from models.errors import UserError
from models.locations import cache_directory
from tests.fake_engine import FakeEngine, FakeGeneration
from tests.locks import locked

CLIENTS = Path(__file__).parent / "clients"
KEY = "right"
FULL = "turn me away"
INSTALL_SECONDS = 600
RUN_SECONDS = 300


class SelectiveEngine(FakeEngine):
    """Has no room for whoever says so, and for the next `refusals` requests."""

    refusals = 0

    def open_choices(self, request: Any, n: int) -> list[FakeGeneration]:
        if self.refusals or FULL in "".join(map(chr, request.prompt)):
            self.refusals = max(0, self.refusals - 1)
            raise UserError("the queue is full.", code="queue_full")
        return super().open_choices(request, n)


def python_with(client: str) -> Path:
    """A Python that has the packages of `tests/clients/python/{client}.txt`."""
    requirements = CLIENTS / "python" / f"{client}.txt"

    def install(place: Path) -> None:
        python = place / "bin" / "python"
        _install([sys.executable, "-m", "venv", str(place)])
        pip = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--quiet"]
        _install([*pip, "-r", str(requirements)])

    return _kept(client, [requirements], install, extra=sys.version) / "bin" / "python"


def node_modules() -> Path:
    """The directory with the scripts of `tests/clients/node` and the packages they use."""
    source = CLIENTS / "node"
    named = [source / "package.json", source / "package-lock.json"]

    def install(place: Path) -> None:
        place.mkdir(parents=True)
        for file in named:
            shutil.copy(file, place)
        npm = ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(place)]
        _install(npm)

    return _kept("node", named, install)


def require_node() -> None:
    """Have node and npm, from Debian where this may install them."""
    with locked(cache_directory() / "clients" / "debian.lock"):
        _bring_node()


def _bring_node() -> None:
    lacking = [name for name in ("node", "npm") if shutil.which(name) is None]
    if not lacking:
        return
    why = "and only root may install them"
    if os.geteuid() == 0 and shutil.which("apt-get") is not None:
        packages = ["nodejs", "npm"] if "node" in lacking else ["npm"]
        for command in (["apt-get", "update"], ["apt-get", "install", "-y", *packages]):
            done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS)
            why = f"and `{' '.join(command)}` did not bring them:\n{done.stderr[-1000:]}"
        if all(shutil.which(name) for name in ("node", "npm")):
            return
    pytest.fail(f"These tests need node and npm; {', '.join(lacking)} is missing, {why}")


async def run_client(
    command: Sequence[str | Path], *, directory: Path | None = None, **environment: str
) -> dict[str, Any]:
    """What a client's script says it got: the JSON object that it prints."""
    code, said, errors = await run(command, directory=directory, **environment)
    if code != 0:
        pytest.fail(f"{' '.join(map(str, command))} ended with {code}:\n{errors[-4000:]}")
    found: dict[str, Any] = json.loads(said)
    return found


async def run(
    command: Sequence[str | Path], *, directory: Path | None = None, **environment: str
) -> tuple[int, str, str]:
    """Exit status, stdout and stderr. Nothing of the user's own settings reaches the client."""
    process = await asyncio.create_subprocess_exec(
        *map(str, command),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=directory,
        env={"PATH": os.environ["PATH"], "HOME": str(directory or "/nonexistent"), **environment},
    )
    try:
        async with asyncio.timeout(RUN_SECONDS):
            said, errors = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        pytest.fail(f"{' '.join(map(str, command))} did not end within {RUN_SECONDS} s")
    assert process.returncode is not None, "it has ended"
    return process.returncode, said.decode(), errors.decode(errors="replace")


def _kept(
    name: str, named: Sequence[Path], install: Callable[[Path], None], extra: str = ""
) -> Path:
    """The directory of `install`, by the content of the files `named`."""
    digest = hashlib.sha256(extra.encode())
    for file in named:
        digest.update(file.read_bytes())
    place = cache_directory() / "clients" / f"{name}-{digest.hexdigest()[:16]}"
    with locked(place.with_suffix(".lock")):
        if not (place / "complete").exists():
            shutil.rmtree(place, ignore_errors=True)
            install(place)
            (place / "complete").touch()
    return place


def _install(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS)
    if done.returncode != 0:
        pytest.fail(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
