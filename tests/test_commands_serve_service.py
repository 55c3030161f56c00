"""`outpace serve` as a service: what it tells the service manager, and what it is told."""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
from pathlib import Path

import aiohttp
import pytest
import trustme
from aiohttp import WSMsgType

from bench.gateway_process import free_port
from gateway.service_manager.manager import STEP_SECONDS, STOP_MARGIN
from models.package import load_package
from tests.patience import PATIENCE
from tests.service_process import service
from tests.systemd_support import tool


async def answered(origin: str, **fields: object) -> tuple[int, dict[str, object]]:
    body = {"input": "the one", "max_output_tokens": 2, **fields}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{origin}/v1/responses", json=body) as response,
    ):
        return response.status, await response.json()


async def test_from_loading_to_the_end(tiny_package: Path, tmp_path: Path) -> None:
    arguments = ("--port", "0", "--package", str(tiny_package), "--drain-seconds", "7")
    async with service(tmp_path, *arguments) as running:
        origin = await running.ready()
        *steps, _ = running.listener.messages
        assert steps[0][0].startswith("STATUS=checking ")
        assert len(steps) > 3
        extension = f"EXTEND_TIMEOUT_USEC={STEP_SECONDS * 1e6:.0f}"
        assert all(line.startswith("STATUS=") for line, _ in steps)
        assert all(more == extension for _, more in steps)
        assert (await answered(origin))[0] == 200
        running.process.send_signal(signal.SIGTERM)
        stopping = await running.listener.until_line("STOPPING=1")
        assert stopping[1:] == [
            "STATUS=draining: 0 answers running, 7 s at most",
            f"EXTEND_TIMEOUT_USEC={(7 + STOP_MARGIN) * 1e6:.0f}",
        ]
        assert await running.ended() == 0


async def test_while_it_is_idle_or_answers_the_watchdog_is_fed(
    tiny_package: Path, tmp_path: Path
) -> None:
    arguments = ("--port", "0", "--package", str(tiny_package))
    async with service(tmp_path, *arguments, environment={"WATCHDOG_USEC": "400000"}) as running:
        origin = await running.ready()
        loop = asyncio.get_running_loop()
        fed: list[float] = []
        asking = asyncio.create_task(answered(origin, max_output_tokens=50))
        for _ in range(10):
            await running.listener.until_line("WATCHDOG=1")
            fed.append(loop.time())
        assert (await asking)[0] == 200
        # Every 0.1 s; the machine that runs this test may be slow, and is not for 4 s.
        assert fed[-1] - fed[0] < 4
        running.process.send_signal(signal.SIGSTOP)
        while not running.listener.empty():
            pass
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await running.listener.until_line("WATCHDOG=1")
        running.process.send_signal(signal.SIGCONT)
        await running.listener.until_line("WATCHDOG=1")


async def test_a_hangup_reads_limits_again(tiny_package: Path, tmp_path: Path) -> None:
    config = tmp_path / "outpace.toml"
    text = f'package = "{tiny_package}"\nport = 0\n'
    config.write_text(text)
    async with service(tmp_path, "--config", str(config)) as running:
        origin = await running.ready()
        assert (await answered(origin))[0] == 200

        async def reload(document: str) -> None:
            config.write_text(document)
            running.process.send_signal(signal.SIGHUP)
            message = await running.listener.until(lambda lines: lines[0] == "RELOADING=1")
            assert message[1].startswith("MONOTONIC_USEC=")
            ready = await running.listener.until(lambda lines: lines[0] == "READY=1")
            assert ready[1] == f"STATUS=ready on {origin}/v1"

        await reload(f"slots = 3\n{text}[limits]\noutput_tokens = 1\nrequests_per_minute = 1\n")
        await running.said("in use from now on: limits.output_tokens, limits.requests_per_minute")
        await running.said("changed, but only a restart puts it in use: slots")
        status, refused = await answered(origin)
        assert (status, "max_output_tokens" in str(refused)) == (400, True)
        assert (await answered(origin, max_output_tokens=1))[0] == 200
        assert (await answered(origin, max_output_tokens=1))[0] == 429
        # What cannot be read changes nothing.
        await reload("slots = ")
        await running.said("settings were not reloaded, those in use stay")
        assert (await answered(origin, max_output_tokens=1))[0] == 429
        await reload(text)
        assert (await answered(origin))[0] == 200


async def test_keys_in_the_settings_are_reloaded_and_never_to_none(
    tiny_package: Path, tmp_path: Path
) -> None:
    config = tmp_path / "outpace.toml"
    text = f'package = "{tiny_package}"\nport = 0\n'
    config.write_text(f'{text}api_keys = ["first-key"]\n')
    async with (
        service(tmp_path, "--config", str(config)) as running,
        aiohttp.ClientSession() as session,
    ):
        origin = await running.ready()

        async def status(key: str) -> int:
            headers = {"Authorization": f"Bearer {key}"}
            async with session.get(f"{origin}/v1/models", headers=headers) as response:
                return response.status

        config.write_text(f'{text}api_keys = ["second-key"]\n')
        running.process.send_signal(signal.SIGHUP)
        await running.said("1 API keys are in use")
        assert (await status("first-key"), await status("second-key")) == (401, 200)
        config.write_text(text)
        running.process.send_signal(signal.SIGHUP)
        await running.said("those in use stay: there are none any more")
        assert (await status("first-key"), await status("second-key")) == (401, 200)
    assert not any("first-key" in line or "second-key" in line for line in running.lines)


async def test_a_hangup_takes_other_administrators(tiny_package: Path, tmp_path: Path) -> None:
    keys, config = tmp_path / "keys", tmp_path / "outpace.toml"
    keys.write_text("ann:first-key\n")
    text = f'package = "{tiny_package}"\nport = 0\napi_keys_file = "{keys}"\n'
    config.write_text(text)
    async with (
        service(tmp_path, "--config", str(config)) as running,
        aiohttp.ClientSession(headers={"Authorization": "Bearer first-key"}) as session,
    ):
        origin = await running.ready()
        name = load_package(tiny_package).manifest.name

        async def status() -> int:
            body = {"model": name}
            async with session.post(f"{origin}/v1/packages/load", json=body) as response:
                return response.status

        assert await status() == 403
        config.write_text(f'{text}admins = ["ann"]\n')
        running.process.send_signal(signal.SIGHUP)
        await running.said("in use from now on: admins")
        assert await status() == 200
        config.write_text(text)
        running.process.send_signal(signal.SIGHUP)
        await running.listener.until(lambda lines: lines[0] == "RELOADING=1")
        await running.listener.until(lambda lines: lines[0] == "RELOADING=1")
        await running.listener.until(lambda lines: lines[0] == "READY=1")
        assert await status() == 403


async def test_a_watchdog_that_is_quicker_than_the_gateway_is_warned_of(
    tiny_package: Path, tmp_path: Path
) -> None:
    arguments = ("--port", "0", "--package", str(tiny_package))
    async with service(tmp_path, *arguments, environment={"WATCHDOG_USEC": "9000000"}) as running:
        await running.said("WatchdogSec=9 may kill the gateway 11.25 s into a run that hangs")
        await running.ready()


async def test_a_drain_refuses_what_is_new_and_cuts_at_its_deadline(
    tiny_package: Path, tmp_path: Path
) -> None:
    arguments = ("--port", "0", "--package", str(tiny_package), "--drain-seconds", "0.5")
    connector = aiohttp.TCPConnector(force_close=True)
    async with (
        service(tmp_path, *arguments) as running,
        aiohttp.ClientSession(connector=connector) as session,
    ):
        origin = await running.ready()
        async with session.ws_connect(f"{origin}/v1/responses") as connection:
            # Many more than end within the deadline.
            for lane in range(30):
                await connection.send_json(
                    {"type": "response.create", "input": "the", "stream_id": str(lane)}
                )
            await connection.receive_json(timeout=PATIENCE)
            running.process.send_signal(signal.SIGTERM)
            stopping = await running.listener.until_line("STOPPING=1")
            assert "answers running, 0.5 s at most" in stopping[1]
            async with session.post(f"{origin}/v1/responses", json={"input": "x"}) as late:
                assert (late.status, late.headers["Retry-After"]) == (503, "5")
                assert (await late.json())["error"]["code"] == "draining"
            # An upgrade is refused like a request: with a time to come again, before the switch.
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await session.ws_connect(f"{origin}/v1/responses")
            assert refused.value.status == 503
            assert refused.value.headers is not None
            assert refused.value.headers["Retry-After"] == "5"
            statuses = set()
            while (message := await connection.receive(timeout=PATIENCE)).type is WSMsgType.TEXT:
                event = message.json()
                if event["type"].startswith("response.") and "response" in event:
                    statuses.add(event["response"]["status"])
            assert (message.type, message.data) == (WSMsgType.CLOSE, 1001)
            assert "cancelled" in statuses
        assert await running.ended() == 0


async def test_a_second_signal_ends_it_at_once(roomy_package: Path, tmp_path: Path) -> None:
    arguments = ("--port", "0", "--package", str(roomy_package), "--drain-seconds", "600")
    async with service(tmp_path, *arguments) as running, aiohttp.ClientSession() as session:
        origin = await running.ready()
        async with session.ws_connect(f"{origin}/v1/responses") as connection:
            # More than ends before the second signal comes, on any machine.
            asked = {"type": "response.create", "input": "the", "ignore_eos": True}
            for lane in range(30):
                await connection.send_json({**asked, "stream_id": str(lane)})
            await connection.receive_json(timeout=PATIENCE)
            running.process.send_signal(signal.SIGTERM)
            await running.listener.until_line("STOPPING=1")
            running.process.send_signal(signal.SIGTERM)
            assert await running.ended() == -signal.SIGTERM


async def test_credentials_are_keys_and_a_certificate(tiny_package: Path, tmp_path: Path) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    directory = tmp_path / "credentials"
    directory.mkdir()
    chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
    (directory / "tls_certificate").write_bytes(chain)
    (directory / "tls_key").write_bytes(issued.private_key_pem.bytes())
    (directory / "api_keys").write_text("ann:secret-key\n")
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    arguments = ("--port", "0", "--package", str(tiny_package))
    credentials = {"CREDENTIALS_DIRECTORY": str(directory)}
    async with (
        service(tmp_path, *arguments, environment=credentials) as running,
        aiohttp.ClientSession() as session,
    ):
        origin = await running.ready()
        assert origin.startswith("https://127.0.0.1:")
        for key, expected in (("secret-key", 200), ("another", 401)):
            headers = {"Authorization": f"Bearer {key}"}
            asked = session.get(f"{origin}/v1/models", headers=headers, ssl=trusting)
            async with asked as response:
                assert response.status == expected


async def test_socket_activation(tiny_package: Path, tmp_path: Path) -> None:
    """The first connection starts it; host and port of the settings do not count."""
    port = free_port()
    activate = (tool("systemd-socket-activate"), "-l", f"127.0.0.1:{port}")
    passed_on = [f"--setenv={name}" for name in ("NOTIFY_SOCKET", "PYTHONPATH", "OUTPACE_CACHE")]
    known = [each for each in passed_on if each.partition("=")[2] in {*os.environ, "NOTIFY_SOCKET"}]
    names = ("--fdname=main", *known)
    arguments = ("--host", "0.0.0.0", "--port", "1", "--package", str(tiny_package))
    async with service(tmp_path, *arguments, before=(*activate, *names)) as running:
        await running.said("Listening on")
        origin = f"http://127.0.0.1:{port}"
        asking = asyncio.create_task(answered(origin))
        assert await running.ready() == origin
        status, body = await asking
        # It came while the model was loading: refused with a time, or answered.
        assert status in (200, 503), body
        assert (await answered(origin))[0] == 200
        assert not any("API keys" in line for line in running.lines), "it listens on loopback"
        running.process.send_signal(signal.SIGTERM)
        assert await running.ended() == 0
