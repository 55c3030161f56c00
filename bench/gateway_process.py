"""A gateway of its own, as a subprocess on a free port of the loopback interface."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from bench.setup import Setup, progress
from models.errors import UserError

_START_SECONDS = 600.0
_STOP_SECONDS = 30.0
_POLL_SECONDS = 0.1

_LEAST_PORT, _TRIED_PORTS = 10_000, 100
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


@dataclass(frozen=True, slots=True)
class GatewayProcess:
    """A gateway that is ready. `url` is its origin, `pid` its process, `log` what it says."""

    url: str
    pid: int
    log: Path

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)


@asynccontextmanager
async def running_gateway(setup: Setup, **settings: object) -> AsyncIterator[GatewayProcess]:
    """Start `python -m gateway serve` with `settings` as its flags; it is stopped on leaving.

    Raises `UserError` (`gateway_failed`) with its last words when it does not become ready.
    """
    flags: dict[str, object] = {"package": setup.package.path, "port": free_port(), **settings}
    if setup.threads is not None:
        flags["threads"] = setup.threads
    command = [sys.executable, "-m", "gateway", "serve", "--host", "127.0.0.1"]
    for name, value in flags.items():
        command += ["--" + name.replace("_", "-"), str(value)]
    with tempfile.NamedTemporaryFile(prefix="outpace-bench-", suffix=".log") as log:
        process = await asyncio.create_subprocess_exec(
            *command, stdout=log, stderr=log, env=_environment(os.environ)
        )
        try:
            url = f"http://127.0.0.1:{flags['port']}"
            await _wait_ready(process, url, Path(log.name))
            progress(f"gateway ready on {url}")
            yield GatewayProcess(url=url, pid=process.pid, log=Path(log.name))
        finally:
            await _stop(process)


def free_port() -> int:
    """A port that nothing listens on; if it can be, one that the system gives to no connection of
    its own accord before a gateway has it."""
    below = range(_LEAST_PORT, _first_ephemeral())
    for port in (*random.sample(below, k=min(len(below), _TRIED_PORTS)), 0):
        with socket.socket() as listener, suppress(OSError):
            listener.bind(("127.0.0.1", port))
            found: int = listener.getsockname()[1]
            return found
    raise UserError("this machine has no free port.", code="gateway_failed")


def _first_ephemeral() -> int:
    try:
        return int(_EPHEMERAL.read_text().split()[0])
    except (OSError, ValueError):
        return 32_768


def _environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Without the user's own settings, so that a figure depends on what the report names."""
    return {name: value for name, value in environment.items() if not name.startswith("OUTPACE_")}


async def _wait_ready(process: asyncio.subprocess.Process, url: str, log: Path) -> None:
    try:
        async with asyncio.timeout(_START_SECONDS), aiohttp.ClientSession() as session:
            while process.returncode is None:
                if await _is_ready(session, url):
                    return
                # The gateway tells nobody when it is ready but those who ask.
                await asyncio.sleep(_POLL_SECONDS)
        problem = f"ended with status {process.returncode}"
    except TimeoutError:
        problem = f"was not ready within {_START_SECONDS:.0f} s"
    raise UserError(
        f"the gateway {problem}. Its last words:\n{_last_words(log)}", code="gateway_failed"
    )


def _last_words(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace")[-2000:].strip()


async def _is_ready(session: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with session.get(f"{url}/ready") as response:
            return response.status == 200
    except aiohttp.ClientConnectionError:
        return False


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(_STOP_SECONDS):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
