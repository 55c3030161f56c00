"""A gateway whose device never comes back, as a process: it says so, and ends for another one."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import aiohttp

from bench.gateway_process import free_port
from gateway.commands.statuses import STUCK

ROOT = Path(__file__).parent.parent

HANGS = """
import sys, threading
from pathlib import Path
from gateway.__main__ import main
from models.target import Target
run, sign = Target.run, Path(sys.argv[1])
def hanging(target, rows):
    if sign.exists():
        threading.Event().wait()
    return run(target, rows)
Target.run = hanging
sys.exit(main(sys.argv[2:]))
"""
"""A gateway whose runs hang, as a kernel does that never returns, once a file is there."""


async def test_it_fails_its_answers_says_so_and_ends(tiny_package: Path, tmp_path: Path) -> None:
    sign, port = tmp_path / "hang", free_port()
    url = f"http://127.0.0.1:{port}"
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-c", HANGS, str(sign), "serve", "--port", str(port), "--package", str(tiny_package)),
        *("--stuck-seconds", "1", "--stuck-exit-seconds", "2"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=ROOT,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(90), aiohttp.ClientSession() as session:
            while b"ready on " not in (line := await process.stdout.readline()):
                assert line, "serve ended"
            body = {"input": "hello", "max_output_tokens": 4}
            async with session.post(f"{url}/v1/responses", json=body) as response:
                assert response.status == 200
            sign.touch()
            async with session.post(f"{url}/v1/responses", json=body) as response:
                told = await response.json()
                assert (response.status, told["error"]["code"]) == (503, "device_error")
                assert "Retry-After" in response.headers
            async with session.get(f"{url}/health") as response:
                assert (response.status, await response.json()) == (503, {"status": "stuck"})
            async with session.get(f"{url}/v1/packages") as response:
                (package,) = (await response.json())["data"]
                assert package["state"] == "stuck"
                assert "has not come back" in package["problem"]
            rest = (await process.stdout.read()).decode()
            assert await process.wait() == STUCK
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert "has not come back for" in rest
    assert "; ending" in rest


async def test_a_stuck_gateway_that_is_told_to_stop_stops(
    tiny_package: Path, tmp_path: Path
) -> None:
    """Nobody waits for a run that does not end: not its drain, and not the end of its threads."""
    sign, port = tmp_path / "hang", free_port()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-c", HANGS, str(sign), "serve", "--port", str(port), "--package", str(tiny_package)),
        *("--stuck-seconds", "1", "--stuck-exit-seconds", "3600", "--drain-seconds", "1"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=ROOT,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(90), aiohttp.ClientSession() as session:
            while b"ready on " not in (line := await process.stdout.readline()):
                assert line, "serve ended"
            sign.touch()
            body = {"input": "hello", "max_output_tokens": 4}
            async with session.post(f"http://127.0.0.1:{port}/v1/responses", json=body) as response:
                assert response.status == 503
            process.terminate()
            await process.stdout.read()
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
