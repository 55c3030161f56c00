"""Ids, access lines, and what neither log nor answer may tell."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterator
from typing import Any

import aiohttp
import pytest

from gateway.http import access
from gateway.http.keys import ApiKey
from gateway.http.responses import routes
from gateway.trace import LEFT
from tests.fake_engine import ENDLESS, FakeEngine
from tests.http_serving import Served, ask, serving, socket_to, until
from tests.patience import PATIENCE
from tests.test_http_websocket import address

SECRET = "tell nobody that the cat is called Minka"
KEY = "sk-very-secret-key"


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Iterator[list[dict[str, Any]]]:
    """Access lines as they come."""
    found: list[dict[str, Any]] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append({"level": record.levelno, **record.fields})  # type: ignore[attr-defined]

    logger, handler = logging.getLogger("gateway.access"), Handler()
    logger.addHandler(handler)
    caplog.set_level(logging.DEBUG)
    yield found
    logger.removeHandler(handler)


async def request(
    served: Served, method: str, path: str, **options: Any
) -> tuple[int, str | None, str]:
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, served.url + path, **options) as response,
    ):
        return response.status, response.headers.get("X-Request-Id"), await response.text()


@pytest.mark.parametrize(
    ("method", "path", "options", "status"),
    [
        ("GET", "/health", {}, 200),
        ("GET", "/v1/models", {}, 200),
        ("GET", "/nothing", {}, 404),
        ("DELETE", "/health", {}, 405),
        ("POST", "/v1/responses", {"json": {"input": "x"}}, 200),
        ("POST", "/v1/responses", {"json": {"input": "x", "stream": True}}, 200),
        ("POST", "/v1/completions", {"json": {"prompt": "x", "stream": True}}, 200),
        ("POST", "/v1/responses", {"data": b"{"}, 400),
        ("GET", "/v1/models", {"headers": {"Origin": "https://evil.example"}}, 403),
    ],
)
async def test_every_answer_names_its_request(
    method: str, path: str, options: dict[str, Any], status: int
) -> None:
    async with serving(FakeEngine("ok")) as served:
        headers = {**options.pop("headers", {}), "X-Request-Id": "mine-1"}
        found = await request(served, method, path, headers=headers, **options)
        assert found[:2] == (status, "mine-1")
        headers["X-Request-Id"] = "not sane"
        _, made, _ = await request(served, method, path, headers=headers, **options)
        assert re.fullmatch("req_[0-9a-f]{24}", made or "")


async def test_a_socket_is_a_request_and_so_is_all_that_is_asked_on_it(
    lines: list[dict[str, Any]],
) -> None:
    async with serving(FakeEngine("abc"), api_keys=(KEY,)) as served:
        headers = {"Authorization": f"Bearer {KEY}", "X-Request-Id": "conn"}
        async with socket_to(served, headers=headers) as socket:
            await ask(socket, input="x")
            (refused,) = await ask(socket, input=7)
            await socket.send_str("{")
            garbled = await socket.receive_json(timeout=PATIENCE)
        await until(lambda: len(lines) == 3)
    first, second, connection = lines
    assert (first["method"], first["path"], first["status"]) == ("WS", "/v1/responses", 200)
    assert (first["connection"], first["key"]) == ("conn", ApiKey.of(KEY).label)
    assert (first["tokens"], first["tau"], first["drafter"]) == (3, 0.75, "ngram")
    assert (second["status"], second["code"]) == (400, "invalid_type")
    assert refused["request_id"] == second["request_id"] != first["request_id"]
    assert "tokens" not in second
    assert garbled["request_id"] == "conn"
    assert (connection["method"], connection["status"]) == ("GET", 101)
    assert (connection["request_id"], connection["code"]) == ("conn", "invalid_json")


async def test_a_completion_has_its_tokens_and_its_tau(lines: list[dict[str, Any]]) -> None:
    async with serving(FakeEngine("abcdefgh")) as served:
        body = {"prompt": "x", "n": 2, "max_tokens": 50}
        await request(served, "POST", "/v1/completions", json=body)
    (line,) = lines
    assert line["level"] == logging.INFO
    assert (line["tokens"], line["tau"], line["drafter"]) == (16, 2.0, "ngram")
    assert {"ms", "status", "request_id"} <= line.keys()


async def test_probes_are_no_news(lines: list[dict[str, Any]]) -> None:
    async with serving(FakeEngine()) as served:
        for path in ("/health", "/ready", "/metrics"):
            await request(served, "GET", path)
    assert [line["level"] for line in lines] == [logging.DEBUG] * 3


async def test_the_log_has_neither_texts_nor_keys(
    caplog: pytest.LogCaptureFixture, lines: list[dict[str, Any]]
) -> None:
    engine = FakeEngine("Minka it is")
    async with serving(engine, api_keys=(KEY,)) as served:
        headers = {"Authorization": f"Bearer {KEY}"}
        for path, body in (
            ("/v1/responses", {"input": SECRET}),
            ("/v1/responses", {"input": SECRET, "stream": True}),
            ("/v1/responses", {"input": SECRET, "temperature": SECRET}),
            ("/v1/chat/completions", {"messages": [{"role": "user", "content": SECRET}]}),
            ("/v1/completions", {"prompt": SECRET, "user": "Minka"}),
        ):
            await request(served, "POST", path, json=body, headers=headers)
        await request(served, "GET", f"/v1/models?api_key={KEY}")
        await request(served, "GET", "/v1/models", headers={"Authorization": "Bearer Minka-7"})
        engine.failure = RuntimeError("the kernel failed")
        await request(served, "POST", "/v1/responses", json={"input": SECRET}, headers=headers)
        async with socket_to(served, headers=headers) as socket:
            await ask(socket, input=SECRET)
        reader, writer = await asyncio.open_connection(*address(served.url))
        garbage = f"GET / HTTP/1.1\r\nAuthorization : Bearer {KEY}\r\n\x00Minka\r\n\r\n"
        writer.write(garbage.encode())
        await reader.read()
        writer.close()
    said = caplog.text + repr(lines)
    assert "the kernel failed" in said
    assert "a connection sent no valid HTTP" in said
    for word in ("Minka", KEY, "sk-very"):
        assert word not in said


async def test_what_breaks_in_a_handler_is_told_to_nobody_but_the_log(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = FakeEngine()

    def broken(*_: object) -> Any:
        raise RuntimeError("secret /etc/outpace/path")

    monkeypatch.setattr(engine, "open_choices", broken)
    async with serving(engine) as served:
        monkeypatch.setattr(engine, "status", broken)
        for method, path, body in (
            ("POST", "/v1/responses", {"input": "x"}),
            ("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}),
            ("GET", "/v1/status", None),
        ):
            caplog.clear()
            headers = {"X-Request-Id": "broken-1"}
            status, name, text = await request(served, method, path, json=body, headers=headers)
            assert (status, name) == (500, "broken-1")
            assert '"code":"server_error"' in text
            assert "secret" not in text
            assert "RuntimeError" not in text
            assert "secret /etc/outpace/path" in caplog.text
        async with socket_to(served) as socket:
            (event,) = await ask(socket, input="x")
        assert (event["status"], event["error"]["code"]) == (500, "server_error")
        assert "secret" not in str(event)
        assert event["request_id"].startswith("req_")


async def test_a_path_cannot_break_a_line(lines: list[dict[str, Any]]) -> None:
    async with serving(FakeEngine()) as served:
        url = f"{served.url}/a%0ab%1b[2J/" + "c" * 500
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            assert response.status == 404
    (line,) = lines
    assert line["path"].isprintable()
    assert len(line["path"]) == access.MOST_PATH


async def test_who_leaves_early_is_logged_as_that(lines: list[dict[str, Any]]) -> None:
    engine = FakeEngine(ENDLESS, pace=0.01)
    async with serving(engine) as served:
        async with aiohttp.ClientSession() as session:
            post = session.post(f"{served.base}/responses", json={"input": "x"})
            posted = asyncio.create_task(post.__aenter__())
            await until(lambda: any(trace.tokens for trace in served.gateway.traces))
            posted.cancel()
        await until(lambda: len(lines) == 1)
    assert lines[0]["status"] == LEFT
    assert lines[0]["tokens"] > 0


async def test_a_client_that_does_not_read_the_rest_is_dropped(
    lines: list[dict[str, Any]],
) -> None:
    """The answer is ready, and nobody takes it: the connection must not stay for ever."""
    engine = FakeEngine(["z" * 65536] * 100)
    async with serving(engine, send_deadline=0.3) as served:
        _reader, writer = await asyncio.open_connection(*address(served.url))
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        body = b'{"input":"x"}'
        writer.write(
            b"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
        )
        await until(lambda: len(lines) == 1)
        assert engine.running == 0
        assert lines[0]["ms"] >= 300
        writer.close()


async def test_a_body_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "BODY_DEADLINE", 0.1)
    async with serving(FakeEngine()) as served:
        reader, writer = await asyncio.open_connection(*address(served.url))
        writer.write(
            b"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"
        )
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE)
        assert head.startswith(b"HTTP/1.1 408 ")
        writer.close()


async def test_the_status_tells_of_the_requests_that_run() -> None:
    engine = FakeEngine(ENDLESS, pace=0.01)
    async with serving(engine) as served, socket_to(served) as socket:
        await socket.send_json({"type": "response.create", "input": "x"})
        for _ in range(8):
            await socket.receive_json(timeout=PATIENCE)
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"{served.base}/status") as response,
        ):
            (running,) = (await response.json())["requests"]
    assert (running["method"], running["drafter"]) == ("WS", "auto")
    assert running["tokens"] >= 3


@pytest.mark.parametrize("path", ["/health", "/nothing", "/v1/responses"])
async def test_no_head_tells_what_versions_serve_it(path: str) -> None:
    async with (
        serving(FakeEngine()) as served,
        aiohttp.ClientSession() as session,
        session.get(served.url + path) as response,
    ):
        assert response.headers["Server"] == "outpace"
