"""An answer's end in time, streams that show that they live, and the turn of keys in the engine."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import orjson
import pytest

from gateway.engine.requests import GenerationRequest
from gateway.fleet.loaded import Loaded, Use
from gateway.http.flow import Flow
from gateway.http.keys import ApiKey
from gateway.http.rates import Rates
from gateway.limits import Limits
from models.errors import UserError
from tests.engine_support import OFF, is_idle, running
from tests.fake_engine import ENDLESS, FakeEngine
from tests.http_serving import ask, serving, socket_to, until


def use_of(engine: FakeEngine) -> Use:
    return Loaded(engine, lambda loaded: None, lambda loaded, error: None).use()


async def test_a_request_that_takes_too_long_fails_and_frees_its_slot() -> None:
    engine = FakeEngine(ENDLESS, pace=0.01)
    async with serving(engine, request_seconds=0.5) as served:
        async with socket_to(served) as socket:
            events = await ask(socket, input="x")
            assert events[-1]["type"] == "response.failed"
            assert "within 0.5 s" in events[-1]["response"]["error"]["message"]
            assert 0 < sum(len(event.get("delta", "")) for event in events) < len(ENDLESS)
        async with aiohttp.ClientSession() as session:
            async with session.post(f"{served.base}/responses", json={"input": "x"}) as response:
                assert response.status == 504
                assert (await response.json())["error"]["code"] == "request_timeout"
            engine.pace, short = 0.0, {"prompt": "x", "max_tokens": 2}
            async with session.post(f"{served.base}/completions", json=short) as response:
                assert response.status == 200
            engine.pace = 0.01
            body = {"messages": [{"role": "user", "content": "x"}]}
            async with session.post(f"{served.base}/chat/completions", json=body) as response:
                assert response.status == 504
                assert (await response.json())["error"]["code"] == "request_timeout"
            body["stream"] = True  # type: ignore[assignment]
            async with session.post(f"{served.base}/chat/completions", json=body) as response:
                last = (await response.text()).strip().rpartition("\n\n")[2]
                told = orjson.loads(last.removeprefix("data: "))
                assert told["error"]["code"] == "request_timeout"
        assert engine.running == 0
        assert served.gateway.metrics.refused["request_timeout"] == 4


async def test_a_request_in_time_is_not_cut() -> None:
    engine = FakeEngine("x" * 20, pace=0.01)
    async with serving(engine, request_seconds=30) as served, socket_to(served) as socket:
        assert (await ask(socket, input="x"))[-1]["type"] == "response.completed"


async def test_a_cancelled_answer_is_no_timeout() -> None:
    engine = FakeEngine(ENDLESS, pace=0.005)
    flow = Flow(Rates(Limits()), 30.0)
    (generation,) = flow.open(use_of(engine), GenerationRequest((1, 2)), 1)
    async with generation:
        events = []
        async for event in generation:
            events.append(event)
            generation.cancel()
    assert getattr(events[-1], "reason", None) == "cancelled"


async def test_an_engine_that_refuses_leaves_no_trace() -> None:
    rates = Rates(Limits(requests=1))
    flow = Flow(rates, None)
    with pytest.raises(UserError, match="the queue is full"):
        flow.open(use_of(FakeEngine(capacity=0)), GenerationRequest((1, 2)), 1)
    rates.begin(None, 1)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/responses", {"input": "x", "stream": True}),
        ("/chat/completions", {"messages": [{"role": "user", "content": "x"}], "stream": True}),
        ("/completions", {"prompt": "x", "stream": True}),
    ],
)
async def test_a_stream_that_waits_shows_that_it_lives(path: str, body: dict[str, object]) -> None:
    engine = FakeEngine("ab", pace=0.2)
    async with (
        serving(engine, keep_alive=0.03) as served,
        aiohttp.ClientSession() as session,
        session.post(served.base + path, json=body) as response,
    ):
        text = await response.text()
    assert text.count(": keep-alive\n\n") >= 4
    # Comments stand between events, never inside of one.
    for block in text.removesuffix("\n\n").split("\n\n"):
        assert block == ": keep-alive" or block.startswith(("data: ", "event: "))


async def test_a_stream_that_talks_needs_no_comments() -> None:
    """It takes longer than a silence may, of which no piece takes a fiftieth."""
    engine, body = FakeEngine("x" * 60, pace=0.02), {"prompt": "x", "stream": True}
    async with (
        serving(engine, keep_alive=1.0) as served,
        aiohttp.ClientSession() as session,
        session.post(f"{served.base}/completions", json=body) as response,
    ):
        assert "keep-alive" not in await response.text()


async def test_waiting_for_a_slot_has_an_end_and_then_a_status(tiny_package: Path) -> None:
    async with running(tiny_package, slots=1, queue_seconds=0) as engine:
        request = GenerationRequest((1, 2, 3), ignore_eos=True, speculation=OFF)
        async with engine.open(request) as first:
            await anext(first)
            async with serving(engine) as served, socket_to(served) as socket:
                events = await ask(socket, input="hello")
                assert events[-1]["type"] == "response.failed"
                assert "no slot became free within 0 s" in str(events[-1]["response"]["error"])
                for path, body in (
                    ("/completions", {"prompt": "hello"}),
                    ("/responses", {"input": "hello"}),
                ):
                    async with (
                        aiohttp.ClientSession() as session,
                        session.post(served.base + path, json=body) as response,
                    ):
                        assert response.status == 503
                        assert response.headers["Retry-After"] == "5"
                        assert (await response.json())["error"]["code"] == "queue_timeout"
        await until(lambda: is_idle(engine))


async def test_keys_take_turns_in_the_queue_of_a_real_engine(tiny_package: Path) -> None:
    """Of a key that sent six and one that sent one, the one is answered second at the latest."""
    keys = ("greedy", "modest")
    ended: list[str] = []
    async with running(tiny_package, slots=1, queue=20) as engine:
        engine.target.gate.clear()
        async with serving(engine, api_keys=keys) as served:

            async def post(key: str) -> None:
                async with (
                    aiohttp.ClientSession(headers={"Authorization": f"Bearer {key}"}) as session,
                    session.post(
                        f"{served.base}/completions", json={"prompt": "hello", "max_tokens": 2}
                    ) as response,
                ):
                    assert response.status == 200
                ended.append(key)

            async with asyncio.TaskGroup() as group:
                for count in range(1, 7):
                    group.create_task(post("greedy"))
                    await until(lambda count=count: in_engine(engine) == count)
                group.create_task(post("modest"))
                await until(lambda: in_engine(engine) == 7)
                engine.target.gate.set()
    assert ended[1] == "modest"
    assert ended.count("greedy") == 6


def in_engine(engine: object) -> int:
    status = engine.status()  # type: ignore[attr-defined]
    return int(status.running + status.waiting)


async def test_the_key_of_a_request_reaches_the_engine() -> None:
    engine = FakeEngine("ok")
    async with serving(engine, api_keys=("one", "two")) as served:
        for key in ("one", "two"):
            async with socket_to(served, headers={"Authorization": f"Bearer {key}"}) as socket:
                await ask(socket, input="x", user="ann")
    owners = [request.key for request in engine.requests]
    assert owners == [ApiKey.of("one").owner, ApiKey.of("two").owner]
