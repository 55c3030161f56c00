"""Several packages on the wire: which one answers, who may load and unload, what is told."""

from __future__ import annotations

import asyncio
import dataclasses
from contextlib import AsyncExitStack
from typing import Any

import aiohttp
import pytest

from gateway.http.app import drain
from gateway.http.responses.routes import ResponsesRoutes
from gateway.http.sse import Streaming
from models.errors import DeviceError
from tests.fake_engine import FakeEngine
from tests.fleet_support import Starts, furnish, source
from tests.http_serving import Served, ask, serving, socket_to, until
from tests.patience import PATIENCE
from tests.test_http_guard import get

CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "x"}]}
ASKED: list[tuple[str, dict[str, Any]]] = [
    ("/v1/responses", {"input": "x"}),
    ("/v1/chat/completions", CHAT),
    ("/v1/completions", {"prompt": "x"}),
]


async def post(served: Served, path: str, body: dict[str, Any], **headers: str) -> tuple[int, Any]:
    return await get(served, path, method="POST", json=body, headers=headers)


async def change(served: Served, what: str, model: str, **fields: Any) -> tuple[int, Any]:
    return await post(served, f"/v1/packages/{what}", {"model": model, **fields})


@pytest.mark.parametrize(("path", "body"), ASKED)
async def test_a_request_names_its_package(path: str, body: dict[str, Any]) -> None:
    async with serving(None) as served:
        starts = await furnish(served.gateway, "a", "b")
        for model, name in ((None, "a"), ("a", "a"), ("b", "b")):
            asked = body if model is None else {**body, "model": model}
            status, answer = await post(served, path, asked)
            assert (status, answer["model"]) == (200, name)
        assert [len(engine.requests) for engine in starts.engines] == [2, 1]
        status, answer = await post(served, path, {**body, "model": "c"})
        assert (status, answer["error"]["code"]) == (404, "model_not_found")
        assert "'a', 'b'" in answer["error"]["message"]


async def test_models_are_listed_the_default_first() -> None:
    async with serving(None) as served:
        await furnish(served.gateway, "a", "b")
        await change(served, "switch", "b")
        _, models = await get(served, "/v1/models")
        found = [(each["id"], each["state"]) for each in models["data"]]
        assert found == [("b", "loaded"), ("a", "unloaded")]
        _, model = await get(served, "/v1/models/a")
        assert (model["id"], model["state"]) == ("a", "unloaded")
        assert (await get(served, "/v1/models/c"))[0] == 404


async def test_the_status_is_of_the_default_or_of_who_is_named() -> None:
    async with serving(None) as served:
        await furnish(served.gateway, "a", "b")
        status, told = await get(served, "/v1/status")
        assert (status, told["model"], told["state"]) == (200, "a", "loaded")
        a, b = told["packages"]
        assert (a["id"], a["state"], a["default"], a["loads"]) == ("a", "loaded", True, 1)
        assert (b["id"], b["state"], b["default"], b["idle_seconds"]) == (
            "b",
            "unloaded",
            False,
            None,
        )
        status, told = await get(served, "/v1/status?model=b")
        assert (status, told["error"]["code"]) == (503, "not_loaded")
        await change(served, "load", "b")
        status, told = await get(served, "/v1/status?model=b")
        assert (status, told["model"]) == (200, "b")
        assert (await get(served, "/v1/status?model=c"))[0] == 404


async def test_metrics_tell_packages_apart() -> None:
    async with serving(None) as served, aiohttp.ClientSession() as session:
        await furnish(served.gateway, "a", "b")
        async with session.get(f"{served.url}/metrics") as response:
            text = await response.text()
    assert 'outpace:slots{model="a"} 4.0' in text
    assert 'outpace:slots{model="b"}' not in text
    assert 'outpace:package_state{model="b",state="unloaded"} 1.0' in text


async def test_load_unload_and_switch() -> None:
    async with serving(None) as served:
        starts = await furnish(served.gateway, "a", "b")
        status, told = await change(served, "load", "b", keep_alive=30)
        assert (status, told["state"], told["keep_alive"]) == (200, "loaded", 30)
        status, told = await change(served, "unload", "b")
        assert (status, told["state"], told["memory_bytes"]) == (200, "unloaded", 0)
        assert starts.engines[1].closed
        status, told = await change(served, "switch", "b")
        assert (status, told["state"], told["default"]) == (200, "loaded", True)
        await until(lambda: starts.engines[0].closed)
        _, listed = await get(served, "/v1/packages")
        assert [each["state"] for each in listed["data"]] == ["unloaded", "loaded"]
        for what in ("load", "unload", "switch"):
            assert (await change(served, what, "c"))[0] == 404
        status, told = await change(served, "load", "a", keep_alive="long")
        assert (status, told["error"]["param"]) == (400, "keep_alive")
        assert (await post(served, "/v1/packages/load", {}))[1]["error"]["param"] == "model"


async def test_an_unload_waits_for_the_answer_that_runs() -> None:
    async with AsyncExitStack() as stack:
        served = await stack.enter_async_context(serving(None))
        starts = await furnish(served.gateway, "a", starts=Starts("x" * 60, pace=0.005))
        socket = await stack.enter_async_context(socket_to(served))
        await socket.send_json({"type": "response.create", "input": "x"})
        await socket.receive_json(timeout=PATIENCE)
        switching = asyncio.create_task(change(served, "switch", "a"))
        kinds = []
        while not kinds or kinds[-1] not in ("response.completed", "error", "response.failed"):
            kinds.append((await socket.receive_json(timeout=PATIENCE))["type"])
        assert kinds[-1] == "response.completed"
        assert (await switching)[0] == 200
        await until(lambda: starts.engines[0].closed)


async def test_the_default_that_was_unloaded_is_ready_and_comes_back() -> None:
    async with serving(None) as served:
        starts = await furnish(served.gateway, "a")
        served.gateway.fleet.member("a").keep(0)
        await until(lambda: starts.engines[0].closed)
        assert (await get(served, "/ready"))[0] == 200
        status, told = await get(served, "/v1/status")
        assert (status, told["state"], told["running"]) == (200, "unloaded", 0)
        assert (await post(served, *ASKED[0]))[0] == 200
        await until(lambda: len(starts.engines) == 2 and starts.engines[1].closed)


async def test_with_keys_only_those_named_may_administer(tmp_path: Any) -> None:
    keys = tmp_path / "keys"
    keys.write_text("ann:first\nbob:second\n")
    known = {"api_keys_file": keys, "admins": ("ann",)}
    async with serving(FakeEngine(), **known) as served:
        for key, status in (("first", 200), ("second", 403), ("third", 401)):
            asked = {"model": "tiny-test"}
            headers = {"Authorization": f"Bearer {key}"}
            found, told = await post(served, "/v1/packages/load", asked, **headers)
            assert found == status
        assert told["error"]["code"] == "invalid_api_key"
        headers = {"Authorization": "Bearer second"}
        assert (await get(served, "/v1/packages", headers=headers))[0] == 200
        found, told = await post(served, "/v1/packages/unload", asked, **headers)
        assert (found, told["error"]["code"]) == (403, "not_administrator")


async def test_who_may_administer_can_change_while_it_runs(tmp_path: Any) -> None:
    keys = tmp_path / "keys"
    keys.write_text("ann:first\nbob:second\n")
    async with serving(FakeEngine(), api_keys_file=keys, admins=("ann",)) as served:

        async def statuses() -> list[int]:
            asked = {"model": "tiny-test"}
            return [
                (await post(served, "/v1/packages/load", asked, Authorization=f"Bearer {key}"))[0]
                for key in ("first", "second")
            ]

        assert await statuses() == [200, 403]
        settings = dataclasses.replace(served.gateway.settings, admins=("bob",))
        served.gateway.use_settings(settings)
        assert await statuses() == [403, 200]


async def test_keys_without_a_name_may_not() -> None:
    async with serving(FakeEngine(), api_keys=("secret",), admins=("secret",)) as served:
        headers = {"Authorization": "Bearer secret"}
        found, _ = await post(served, "/v1/packages/load", {"model": "tiny-test"}, **headers)
        assert found == 403


async def test_without_keys_only_this_machine_may() -> None:
    async with serving(FakeEngine(), host="0.0.0.0", insecure=True) as served:
        found, told = await change(served, "unload", "tiny-test")
        assert (found, told["error"]["code"]) == (403, "not_administrator")
        assert "loopback" in told["error"]["message"]


@pytest.mark.parametrize(("path", "body"), ASKED)
async def test_a_device_error_is_503_and_the_next_request_is_answered(
    path: str, body: dict[str, Any]
) -> None:
    async with serving(None) as served, aiohttp.ClientSession() as session:
        starts = await furnish(served.gateway, "a")
        starts.engines[0].failure = DeviceError("CUDA failure 2: out of memory at /secret/path")
        async with session.post(served.url + path, json=body) as response:
            told = await response.json()
            assert (response.status, response.headers["Retry-After"]) == (503, "2")
        assert told["error"]["code"] == "device_error"
        assert "secret" not in str(told)
        assert (await post(served, path, body))[0] == 200, "it waits until it is loaded again"
        assert len(starts.engines) == 2
        assert starts.engines[0].closed
        assert served.gateway.metrics.refused["device_error"] == 1


async def test_a_device_error_ends_a_stream_with_one_event() -> None:
    async with AsyncExitStack() as stack:
        served = await stack.enter_async_context(serving(None))
        starts = await furnish(served.gateway, "a")
        socket = await stack.enter_async_context(socket_to(served))
        starts.engines[0].failure = DeviceError("lost")
        events = await ask(socket, input="x")
        assert events[-1]["type"] == "response.failed"
        assert events[-1]["response"]["error"]["code"] == "server_error"
        assert "device failed" in events[-1]["response"]["error"]["message"]
        assert (await ask(socket, input="x"))[-1]["type"] == "response.completed"


async def test_a_turn_of_one_package_can_be_continued_by_another() -> None:
    """What the first was told as tokens means nothing to the second: it is told in words."""
    async with AsyncExitStack() as stack:
        served = await stack.enter_async_context(serving(None))
        starts = await furnish(served.gateway, "a", "b")
        socket = await stack.enter_async_context(socket_to(served))
        first = (await ask(socket, input="one"))[-1]["response"]["id"]
        second = await ask(socket, input="two", previous_response_id=first, model="b")
        assert second[-1]["type"] == "response.completed"
        engine = starts.engines[1]
        assert engine.prompt() == "<user>one</><assistant>Hello</><user>two</><assistant>"
        assert engine.tokenizer.encoded == [engine.prompt()], "whole, and not behind the other's"
        third = await ask(
            socket, input="three", previous_response_id=second[-1]["response"]["id"], model="b"
        )
        assert third[-1]["type"] == "response.completed"
        assert not engine.tokenizer.encoded[1].startswith("<user>one"), "its own are known"


async def test_who_waits_for_a_package_is_told_when_the_gateway_drains() -> None:
    async with serving(None) as served:
        starts = await furnish(served.gateway, "a", "b")
        starts.gate.clear()
        asked = asyncio.create_task(post(served, "/v1/responses", {"input": "x", "model": "b"}))
        await until(lambda: served.gateway.fleet.member("b").waiting == 1)
        await drain(served.gateway, ResponsesRoutes(served.gateway, Streaming()))
        status, told = await asked
        assert (status, told["error"]["code"]) == (503, "draining")


async def test_what_is_forgotten_is_forgotten_of_every_package() -> None:
    forgotten: list[tuple[str, str]] = []

    async def forget(source: Any, user: str) -> None:
        forgotten.append((source.name, user))

    async with serving(None) as served:
        starts = Starts()
        for name in "ab":
            served.gateway.fleet.add(source(name), starts, forget)
        await served.gateway.fleet.start()
        status, _ = await get(served, "/v1/ngram_store?user=u", method="DELETE")
        assert status == 200
        assert len(starts.engines[0].forgotten) == 1
        assert [name for name, _ in forgotten] == ["b"]
