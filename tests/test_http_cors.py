"""What pages of other origins may do and see."""

from __future__ import annotations

import aiohttp
import pytest

from tests.fake_engine import FakeEngine
from tests.http_serving import Served, serving

PAGE = "https://page.example"


async def preflight(served: Served, path: str, **headers: str) -> tuple[int, dict[str, str]]:
    asked = {
        "Origin": PAGE,
        "Access-Control-Request-Method": "POST",
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    async with (
        aiohttp.ClientSession() as session,
        session.options(served.url + path, headers=asked) as response,
    ):
        return response.status, dict(response.headers)


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/chat/completions", "/v1/responses/resp_1"])
async def test_a_page_may_ask_before_it_sends_and_needs_no_key_for_that(path: str) -> None:
    async with serving(FakeEngine(), allowed_origins=(PAGE,), api_keys=("key",)) as served:
        status, headers = await preflight(
            served, path, Access_Control_Request_Headers="authorization, x-stainless-lang"
        )
    assert status == 204
    assert headers["Access-Control-Allow-Origin"] == PAGE
    assert headers["Access-Control-Allow-Methods"] == "GET, POST, DELETE"
    assert headers["Access-Control-Allow-Headers"] == "authorization, x-stainless-lang"
    assert headers["Access-Control-Max-Age"] == "600"
    assert headers["Vary"] == "Origin"
    assert "Access-Control-Allow-Credentials" not in headers
    assert "Access-Control-Allow-Private-Network" not in headers


async def test_a_public_page_may_reach_a_private_network() -> None:
    async with serving(FakeEngine(), allowed_origins=(PAGE,)) as served:
        _, headers = await preflight(
            served, "/v1/responses", Access_Control_Request_Private_Network="true"
        )
    assert headers["Access-Control-Allow-Private-Network"] == "true"


@pytest.mark.parametrize("asked", ["", "a b", "x" * 65, ", ,", ",".join("abcdefgh" * 10)])
async def test_only_names_of_headers_are_repeated(asked: str) -> None:
    async with serving(FakeEngine(), allowed_origins=(PAGE,)) as served:
        _, headers = await preflight(served, "/v1/responses", Access_Control_Request_Headers=asked)
    assert headers["Access-Control-Allow-Headers"] == "Authorization, Content-Type, X-Request-Id"


async def test_other_pages_are_refused() -> None:
    async with serving(FakeEngine(), allowed_origins=(PAGE,)) as served:
        status, headers = await preflight(served, "/v1/responses", Origin="https://evil.example")
    assert status == 403
    assert "Access-Control-Allow-Origin" not in headers


async def test_options_without_an_origin_are_a_method_like_others() -> None:
    async with (
        serving(FakeEngine()) as served,
        aiohttp.ClientSession() as session,
        session.options(f"{served.base}/responses") as response,
    ):
        assert response.status == 405
        assert response.headers["Allow"] == "GET, HEAD, POST"


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/responses", {"input": "x"}, 200),
        ("/v1/responses", {"input": "x", "stream": True}, 200),
        ("/v1/responses", {"input": 7}, 400),
        ("/v1/nothing", {}, 404),
    ],
)
async def test_every_answer_can_be_read_by_the_page(
    path: str, body: dict[str, object], status: int
) -> None:
    async with (
        serving(FakeEngine("ok"), allowed_origins=(PAGE,)) as served,
        aiohttp.ClientSession(headers={"Origin": PAGE}) as session,
        session.post(served.url + path, json=body) as response,
    ):
        assert response.status == status
        assert response.headers["Access-Control-Allow-Origin"] == PAGE
        assert response.headers["Access-Control-Expose-Headers"] == "X-Request-Id, Retry-After"
        assert response.headers["Vary"] == "Origin"


async def test_a_missing_key_can_be_read_too() -> None:
    async with (
        serving(FakeEngine(), allowed_origins=(PAGE,), api_keys=("key",)) as served,
        aiohttp.ClientSession(headers={"Origin": PAGE}) as session,
        session.get(f"{served.base}/models") as response,
    ):
        assert response.status == 401
        assert response.headers["Access-Control-Allow-Origin"] == PAGE


async def test_without_such_pages_nothing_is_said_of_origins() -> None:
    async with serving(FakeEngine()) as served, aiohttp.ClientSession() as session:
        async with session.get(f"{served.base}/models") as response:
            assert "Vary" not in response.headers
        async with session.get(f"{served.base}/models", headers={"Origin": served.url}) as response:
            assert response.status == 200
            assert "Access-Control-Allow-Origin" not in response.headers
