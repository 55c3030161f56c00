"""`outpace serve` as a process, and what it refuses before it loads anything."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import struct
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import psutil
import pytest
from aiohttp import WSMsgType

from gateway.__main__ import main
from gateway.commands.listening import bind
from gateway.commands.statuses import FAILED, MISCONFIGURED
from gateway.settings import Settings
from models.errors import UserError
from tests.patience import PATIENCE

ROOT = Path(__file__).parent.parent


@dataclass(slots=True)
class Process:
    process: asyncio.subprocess.Process
    url: str = ""
    lines: list[str] = field(default_factory=list)


@asynccontextmanager
async def served(*arguments: str) -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "gateway", "serve", "--port", "0", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=ROOT,
    )
    running = Process(process)
    draining: asyncio.Task[None] | None = None
    try:
        assert process.stdout is not None
        async with asyncio.timeout(300):
            while not running.url:
                line = (await process.stdout.readline()).decode().strip()
                assert line, f"serve ended: {running.lines}"
                running.lines.append(line)
                if "ready on " in line:
                    # In JSON the object ends behind it.
                    running.url = line.partition("ready on ")[2].rstrip('"}')
        # Nobody else empties the pipe that its log goes to.
        draining = asyncio.create_task(_drain(process.stdout, running.lines))
        yield running
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        if draining is not None:
            await draining


async def _drain(stream: asyncio.StreamReader, lines: list[str]) -> None:
    while line := await stream.readline():
        lines.append(line.decode().strip())


async def test_it_says_what_it_loaded_serves_and_stops_on_sigterm(tiny_package: Path) -> None:
    async with (
        served("--package", str(tiny_package), "--slots", "2") as running,
        aiohttp.ClientSession() as session,
    ):
        said = "\n".join(running.lines)
        for part in ("checking", "tiny", "fp32", "2 slots", "memory", "exact", "cpu"):
            assert part in said
        async with session.get(running.url.removesuffix("/v1") + "/ready") as response:
            assert response.status == 200
        async with session.ws_connect(f"{running.url}/responses") as connection:
            await connection.send_json(
                {"type": "response.create", "input": "hello", "max_output_tokens": 5}
            )
            kinds = [(await connection.receive_json(timeout=PATIENCE))["type"] for _ in range(3)]
            assert kinds[0] == "response.created"
            running.process.send_signal(signal.SIGTERM)
            while (message := await connection.receive(timeout=PATIENCE)).type is WSMsgType.TEXT:
                kinds.append(message.json()["type"])
            assert kinds[-1] in ("response.completed", "response.incomplete")
            assert (message.type, message.data) == (WSMsgType.CLOSE, 1001)
        assert await asyncio.wait_for(running.process.wait(), PATIENCE) == 0


async def test_two_hundred_killed_clients_leave_memory_as_it_was(tiny_package: Path) -> None:
    # What is kept of stored responses is bounded, and no leak.
    arguments = ("--slots", "2", "--queue", "0", "--keep-seconds", "0")
    async with (
        served("--package", str(tiny_package), *arguments) as running,
        aiohttp.ClientSession() as session,
    ):
        gateway = psutil.Process(running.process.pid)
        address = f"{running.url}/responses"
        await kill_clients(session, address, 50)
        memory, handles = gateway.memory_info().rss, gateway.num_fds()
        await kill_clients(session, address, 200)
        assert gateway.memory_info().rss - memory < 8 << 20
        assert gateway.num_fds() <= handles + 2
        # Nobody may wait (--queue 0), so this answer also shows that both slots are free.
        async with session.ws_connect(address) as one, session.ws_connect(address) as two:
            for connection in (one, two):
                await connection.send_json({"type": "response.create", "input": "the"})
            for connection in (one, two):
                created = await connection.receive_json(timeout=PATIENCE)
                assert created["type"] == "response.created"


async def kill_clients(session: aiohttp.ClientSession, address: str, count: int) -> None:
    for _ in range(count):
        async with session.ws_connect(address) as connection:
            await connection.send_json(
                {"type": "response.create", "input": "the one and the", "store": False}
            )
            while (await connection.receive_json(timeout=PATIENCE))["type"] not in (
                "response.output_text.delta",
                "error",
            ):
                pass
            reset(connection)


def reset(connection: aiohttp.ClientWebSocketResponse) -> None:
    """Drop the connection as a killed process does."""
    handle = connection.get_extra_info("socket")
    handle.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection._response.connection.transport.abort()  # type: ignore[union-attr]


async def test_who_asks_while_answers_end_is_told_to_come_again(tiny_package: Path) -> None:
    async with (
        served("--package", str(tiny_package)) as running,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as session,
        session.ws_connect(f"{running.url}/responses") as connection,
    ):
        for lane in range(12):
            await connection.send_json(
                {"type": "response.create", "input": "hello", "stream_id": str(lane)}
            )
        await connection.receive_json(timeout=PATIENCE)
        running.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(PATIENCE):
            while True:
                async with session.get(f"{running.url}/models") as late:
                    if late.status != 200:
                        break
        assert (late.status, late.headers["Retry-After"]) == (503, "5")
        await connection.send_json({"type": "response.create", "input": "x", "stream_id": "late"})
        while (message := await connection.receive(timeout=PATIENCE)).type is WSMsgType.TEXT:
            event = message.json()
            if event["stream_id"] == "late":
                break
        assert (event["type"], event["error"]["code"]) == ("error", "draining")
        while (message := await connection.receive(timeout=PATIENCE)).type is WSMsgType.TEXT:
            pass
        assert (message.type, message.data) == (WSMsgType.CLOSE, 1001)
        assert await asyncio.wait_for(running.process.wait(), PATIENCE) == 0


async def test_a_hangup_reads_the_keys_again_and_the_gateway_goes_on(
    tiny_package: Path, tmp_path: Path
) -> None:
    keys = tmp_path / "keys"
    keys.write_text("ann:first-key\n")
    arguments = ("--package", str(tiny_package), "--api-keys-file", str(keys))
    async with served(*arguments) as running, aiohttp.ClientSession() as session:

        async def status(key: str) -> int:
            headers = {"Authorization": f"Bearer {key}"}
            async with session.get(f"{running.url}/models", headers=headers) as response:
                return response.status

        async def reload(content: str, told: str) -> None:
            keys.write_text(content)
            running.process.send_signal(signal.SIGHUP)
            async with asyncio.timeout(PATIENCE):
                while not any(told in line for line in running.lines):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)

        assert (await status("first-key"), await status("second-key")) == (200, 401)
        await reload("ann:second-key\n", "1 API keys are in use")
        assert (await status("first-key"), await status("second-key")) == (401, 200)
        await reload("", "API keys were not reloaded, those in use stay")
        assert (await status("first-key"), await status("second-key")) == (401, 200)
        running.process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(running.process.wait(), PATIENCE) == 0
    assert not any("first-key" in line or "second-key" in line for line in running.lines)


async def test_a_json_log_is_json_to_the_last_line(tiny_package: Path) -> None:
    arguments = ("--package", str(tiny_package), "--log-format", "json")
    async with served(*arguments) as running, aiohttp.ClientSession() as session:
        headers = {"X-Request-Id": "mine-7"}
        body = {"input": "the secret word", "max_output_tokens": 3}
        async with session.post(f"{running.url}/responses", json=body, headers=headers) as response:
            assert response.headers["X-Request-Id"] == "mine-7"
        running.process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(running.process.wait(), PATIENCE) == 0
    lines = [json.loads(line) for line in running.lines]
    assert all({"time", "level", "logger", "message"} <= line.keys() for line in lines)
    (access,) = [line for line in lines if line.get("request_id") == "mine-7"]
    assert (access["method"], access["path"], access["status"]) == ("POST", "/v1/responses", 200)
    assert (access["tokens"], access["logger"]) == (3, "gateway.access")
    assert any(line["message"].startswith("ready on http://") for line in lines)
    assert "secret" not in str(lines)


async def test_ctrl_c_stops_it_too(tiny_package: Path) -> None:
    async with served("--package", str(tiny_package)) as running:
        running.process.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(running.process.wait(), PATIENCE) == 0


async def test_a_signal_while_it_loads_does_not_wait_for_the_model(demo_package: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "gateway", "serve", "--port", "0", "--package", str(demo_package)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=ROOT,
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(300):
            while b"memory needed" not in await process.stdout.readline():
                assert not process.stdout.at_eof()
            process.send_signal(signal.SIGINT)
            rest = (await process.stdout.read()).decode()
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert rest == "outpace: stopping; once more stops at once\n"


def refused(
    capsys: pytest.CaptureFixture[str], *arguments: str, status: int = MISCONFIGURED
) -> str:
    assert main(["serve", *arguments]) == status
    error = capsys.readouterr().err
    assert error.startswith("outpace serve: ")
    assert error.count("\n") == 1
    return error


def test_a_port_in_use_is_said_before_anything_is_loaded(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert f"port {port} is in use" in refused(capsys, "--port", str(port), status=FAILED)


def test_a_missing_package_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    error = refused(capsys, "--port", "0", "--package", str(tmp_path))
    assert str(tmp_path) in error
    assert "package.json" in error


def test_an_open_address_needs_keys(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    error = refused(capsys, "--host", "0.0.0.0", "--port", "0")
    assert "OUTPACE_API_KEYS" in error
    assert "--insecure" in error
    # With the flag the next obstacle is the package.
    arguments = ("--host", "0.0.0.0", "--port", "0", "--package", str(tmp_path), "--insecure")
    assert "package.json" in refused(capsys, *arguments)


def test_keys_from_the_environment_open_the_address(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTPACE_API_KEYS", "secret")
    arguments = ("--host", "0.0.0.0", "--port", "0", "--package", str(tmp_path))
    assert "package.json" in refused(capsys, *arguments)


def test_a_missing_onnxruntime_names_the_extras(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    error = refused(capsys, "--port", "0")
    assert "outpace[cpu]" in error
    assert "outpace[gpu]" in error


def test_a_device_that_is_not_there_is_no_silent_fallback(
    capsys: pytest.CaptureFixture[str], tiny_package: Path
) -> None:
    error = refused(capsys, "--port", "0", "--package", str(tiny_package), "--device", "cuda")
    assert "cuda" in error


def test_other_addresses_that_cannot_be_had() -> None:
    with pytest.raises(UserError, match=r"cannot listen on no\.such\.host\.invalid:0"):
        bind(Settings(host="no.such.host.invalid", port=0))
    with pytest.raises(UserError, match=r"cannot listen on 192\.0\.2\.1:0"):
        bind(Settings(host="192.0.2.1", port=0))
    with pytest.raises(UserError, match=r"cannot listen on a\.\.b:0: this is no host name"):
        bind(Settings(host="a..b", port=0))


def test_an_unknown_variable_stops_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTPACE_PROT", "1")
    assert "OUTPACE_PORT" in refused(capsys)
