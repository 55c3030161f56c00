"""Keys, origins, hosts, and everything that is refused before a handler runs."""

from __future__ import annotations

import base64
from typing import Any

import aiohttp
import pytest
from aiohttp import WSServerHandshakeError

from gateway.http.guard import is_loopback
from tests.fake_engine import MODEL, FakeEngine
from tests.http_serving import Served, ask, serving, socket_to


async def get(served: Served, path: str, **options: Any) -> tuple[int, dict[str, Any]]:
    async with (
        aiohttp.ClientSession() as session,
        session.request(options.pop("method", "GET"), served.url + path, **options) as response,
    ):
        assert response.content_type == "application/json"
        return response.status, await response.json()


async def test_health_and_readiness_follow_the_model_and_the_drain() -> None:
    async with serving(None) as served:
        assert await get(served, "/health") == (200, {"status": "ok"})
        assert await get(served, "/ready") == (503, {"status": "loading"})
        status, body = await get(served, "/v1/responses", method="POST", json={"input": "x"})
        assert (status, body["error"]["code"]) == (503, "loading")
        assert (await get(served, "/v1/models"))[0] == 503
        with pytest.raises(WSServerHandshakeError) as refused:
            async with socket_to(served):
                pass
        assert refused.value.status == 503
        served.gateway.engine = FakeEngine()
        assert await get(served, "/ready") == (200, {"status": "ready"})
        served.gateway.draining = True
        assert await get(served, "/ready") == (503, {"status": "draining"})
        assert await get(served, "/health") == (200, {"status": "ok"})


async def test_unknown_paths_and_methods_are_json_errors() -> None:
    async with serving(FakeEngine()) as served:
        for path, options, expected, code in (
            ("/nothing", {}, 404, "not_found"),
            ("/v1/embeddings", {"method": "POST", "json": {}}, 404, "not_found"),
            ("/v1/responses", {"method": "DELETE"}, 405, "method_not_allowed"),
            ("/v1/responses", {}, 405, "method_not_allowed"),
            ("/v1/models/other/model", {}, 404, "model_not_found"),
        ):
            status, body = await get(served, path, **options)
            assert (status, body["error"]["code"]) == (expected, code)
            assert set(body["error"]) == {"message", "type", "param", "code"}
        assert (await get(served, f"/v1/models/{MODEL}"))[1]["context_length"] == 1000


async def test_bodies_that_are_too_large_or_no_json() -> None:
    async with serving(FakeEngine()) as served:
        status, body = await get(
            served, "/v1/responses", method="POST", data=b"x" * ((1 << 20) + 1)
        )
        assert (status, body["error"]["code"]) == (413, "message_too_large")
        status, body = await get(served, "/v1/responses", method="POST", data=b"{")
        assert (status, body["error"]["code"]) == (400, "invalid_json")
        packed = {"data": b"no gzip", "headers": {"Content-Encoding": "gzip"}}
        status, body = await get(served, "/v1/responses", method="POST", **packed)
        assert (status, body["error"]["code"]) == (400, "bad_request")
        status, body = await get(served, "/v1/responses", method="POST", json={"input": "x"})
        assert (status, body["status"]) == (200, "completed")


async def test_a_full_queue_says_when_to_retry() -> None:
    async with (
        serving(FakeEngine(capacity=0)) as served,
        aiohttp.ClientSession() as session,
        session.post(f"{served.base}/responses", json={"input": "x"}) as response,
    ):
        assert response.status == 429
        assert response.headers["Retry-After"] == "1"


ODD_KEY = 'schl\u00fcssel/=(\u2603)"@:'
"""A key that no subprotocol can hold as it is."""


def encoded(key: str) -> str:
    text = base64.urlsafe_b64encode(key.encode()).decode().rstrip("=")
    return f"outpace-api-key-base64url.{text}"


KEYS: list[tuple[dict[str, Any], bool]] = [
    ({}, False),
    ({"headers": {"Authorization": "Bearer right"}}, True),
    ({"headers": {"Authorization": "bearer second"}}, True),
    ({"headers": {"Authorization": "Bearer wrong"}}, False),
    ({"headers": {"Authorization": "Bearer right2"}}, False),
    ({"headers": {"Authorization": "Bearer "}}, False),
    ({"headers": {"Authorization": "Basic right"}}, False),
    ({"protocols": ("realtime", "openai-insecure-api-key.right")}, True),
    ({"protocols": ("openai-insecure-api-key.right",)}, True),
    ({"protocols": ("realtime", "openai-insecure-api-key.wrong")}, False),
    ({"protocols": ("realtime", encoded(ODD_KEY))}, True),
    ({"protocols": (encoded("right"),)}, True),
    ({"protocols": ("realtime", encoded("wrong"))}, False),
    ({"protocols": ("realtime", "outpace-api-key-base64url.")}, False),
    ({"protocols": ("realtime", "outpace-api-key-base64url.cmln*aHQ")}, False),
    ({"protocols": ("realtime", "outpace-api-key-base64url._w")}, False),
]


@pytest.mark.parametrize(("options", "accepted"), KEYS)
async def test_keys_on_a_socket(options: dict[str, Any], accepted: bool) -> None:
    async with serving(FakeEngine("ok"), api_keys=("right", "second", ODD_KEY)) as served:
        if accepted:
            async with socket_to(served, **options) as socket:
                assert (await ask(socket, input="x"))[-1]["type"] == "response.completed"
                # Browsers insist that one of the offered protocols is chosen.
                assert (socket.protocol is not None) == ("protocols" in options)
                return
        with pytest.raises(WSServerHandshakeError) as refused:
            async with socket_to(served, **options):
                pass
        assert refused.value.status == 401


async def test_keys_guard_v1_only() -> None:
    async with serving(FakeEngine(), api_keys=("right",)) as served:
        assert (await get(served, "/health"))[0] == 200
        assert (await get(served, "/ready"))[0] == 200
        status, body = await get(served, "/v1/models")
        assert (status, body["error"]["code"]) == (401, "invalid_api_key")
        # A key in a query string is none.
        assert (await get(served, "/v1/models?api_key=right"))[0] == 401
        status, _ = await get(served, "/v1/models", headers={"Authorization": "Bearer right"})
        assert status == 200


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        (None, 200),
        ("{own}", 200),
        ("https://page.example", 200),
        ("https://other.example", 403),
        ("http://page.example", 403),
        ("null", 403),
        ("http://[broken", 403),
    ],
)
async def test_origins(origin: str | None, status: int) -> None:
    async with serving(FakeEngine(), allowed_origins=("https://page.example",)) as served:
        headers = {} if origin is None else {"Origin": origin.replace("{own}", served.url)}
        found, body = await get(served, "/v1/models", headers=headers)
        assert found == status
        if status == 403:
            assert body["error"]["code"] == "forbidden_origin"
            with pytest.raises(WSServerHandshakeError):
                async with socket_to(served, headers=headers):
                    pass


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("localhost:1234", 200),
        ("127.0.0.1", 200),
        ("[::1]:8765", 200),
        ("page.example", 200),
        ("evil.example", 403),
        ("127.0.0.1.evil.example", 403),
        ("localhost.evil.example:80", 403),
        ("[broken", 403),
    ],
)
async def test_hosts_on_loopback(host: str, status: int) -> None:
    async with serving(FakeEngine(), allowed_origins=("https://page.example",)) as served:
        assert (await get(served, "/health", headers={"Host": host}))[0] == status


async def test_hosts_are_free_beyond_loopback() -> None:
    async with serving(FakeEngine(), host="0.0.0.0", insecure=True) as served:
        assert (await get(served, "/health", headers={"Host": "box.lan"}))[0] == 200


def test_loopback_addresses() -> None:
    local = [host for host in ("127.0.0.1", "127.8.8.8", "::1", "localhost") if is_loopback(host)]
    assert len(local) == 4
    assert not any(map(is_loopback, ("0.0.0.0", "::", "10.0.0.1", "example.org", "")))


@pytest.mark.parametrize(
    ("host", "status"),
    [("box.lan", 200), ("BOX.LAN:8765", 200), ("127.0.0.1", 200), ("evil.example", 403)],
)
async def test_named_hosts_are_checked_beyond_loopback_too(host: str, status: int) -> None:
    """A page whose name was pointed at this machine has its own name as Host, and as Origin."""
    async with serving(
        FakeEngine(), host="0.0.0.0", insecure=True, allowed_hosts=("box.lan",)
    ) as served:
        headers = {"Host": host, "Origin": f"http://{host}"}
        assert (await get(served, "/v1/models", headers=headers))[0] == status


@pytest.mark.parametrize(
    "path", ["/metrics", "/v1/status", "/v1/responses/resp_1", "/v1/ngram_store"]
)
async def test_what_tells_of_others_needs_a_key(path: str) -> None:
    async with serving(FakeEngine(), api_keys=("right",)) as served:
        assert (await get(served, path))[0] == 401


async def test_a_method_that_is_not_there_says_which_are() -> None:
    async with (
        serving(FakeEngine()) as served,
        aiohttp.ClientSession() as session,
        session.patch(f"{served.base}/models") as response,
    ):
        assert response.status == 405
        assert response.headers["Allow"] == "GET, HEAD"
