"""The client side of the terminal chat."""

from __future__ import annotations

import asyncio

import pytest

from gateway.client import TOO_LONG, RequestError, connect
from gateway.limits import Limits
from models.errors import UserError
from tests.fake_engine import ENDLESS, FakeEngine
from tests.http_serving import serving, until
from tests.patience import PATIENCE


async def test_a_cancellation_before_the_response_exists_is_kept_for_it() -> None:
    engine = FakeEngine(ENDLESS, pace=0.01)
    async with serving(engine) as served:
        chat = await connect(served.url)
        answer = asyncio.create_task(chat.ask("one", lambda text: None))
        await asyncio.sleep(0)
        await chat.cancel()
        response = await asyncio.wait_for(answer, PATIENCE)
        assert response["status"] == "cancelled"
        await chat.close()
    assert len(engine.requests) == 1


async def test_a_turn_that_was_cancelled_before_its_answer_began_is_forgotten() -> None:
    engine = FakeEngine("yes")
    async with serving(engine) as served:
        chat = await connect(served.url)
        await chat.ask("one", lambda text: None)
        engine.answer, engine.pace = ENDLESS, 0.3
        answer = asyncio.create_task(chat.ask("two", lambda text: None))
        await until(lambda: engine.running == 1 and chat._running is not None)
        await chat.cancel()
        assert (await asyncio.wait_for(answer, PATIENCE))["status"] == "cancelled"
        engine.answer, engine.pace = "yes", 0
        await chat.ask("three", lambda text: None)
        assert engine.prompt() == "<user>one</><assistant>yes</><user>three</><assistant>"
        await chat.close()


async def test_a_line_too_long_for_a_message_is_refused_and_the_conversation_goes_on() -> None:
    assert Limits().message_bytes == TOO_LONG
    engine = FakeEngine("yes")
    async with serving(engine) as served:
        chat = await connect(served.url, fields={"seed": 5})
        await chat.ask("one", lambda text: None)
        with pytest.raises(RequestError, match=r"too long for one message: 10486[0-9][0-9] bytes"):
            await chat.ask("\n" * (TOO_LONG // 2), lambda text: None)
        # As long as a message can be: the gateway reads it, and says what it has too much of.
        framed = len('{"type":"response.create","input":"","previous_response_id":"","seed":5}')
        most = TOO_LONG - 1 - framed - len(f"resp_{'0' * 32}")
        with pytest.raises(RequestError, match="the prompt has"):
            await chat.ask("x" * most, lambda text: None)
        with pytest.raises(RequestError, match="too long"):
            await chat.ask("x" * (most + 1), lambda text: None)
        await chat.close()


async def test_a_key_that_no_header_can_carry_is_refused() -> None:
    for key in ("a\nb", "\udcff"):
        with pytest.raises(UserError, match="API key"):
            await connect("http://127.0.0.1:1", api_key=key)


async def test_a_cancellation_that_comes_too_late_hurts_nothing() -> None:
    engine = FakeEngine("yes")
    async with serving(engine) as served:
        chat = await connect(served.url)
        first = await chat.ask("one", lambda text: None)
        await chat._send({"type": "response.cancel", "response_id": first["id"]})
        said: list[str] = []
        second = await chat.ask("two", said.append)
        assert second["previous_response_id"] == first["id"]
        assert "".join(said) == "yes"
        await chat.close()


async def test_a_forgotten_conversation_begins_anew() -> None:
    engine = FakeEngine("yes")
    async with serving(engine) as served:
        chat = await connect(served.url)
        await chat.ask("one", lambda text: None)
        engine.failure = RuntimeError("gone")
        with pytest.raises(RequestError, match="its log says why"):
            await chat.ask("two", lambda text: None)
        engine.failure = None
        for response_id in list(served.gateway.turns._turns):
            served.gateway.turns.evict(response_id)
        with pytest.raises(RequestError, match="begins anew"):
            await chat.ask("two", lambda text: None)
        await chat.ask("three", lambda text: None)
        assert engine.prompt() == "<user>three</><assistant>"
        await chat.close()


async def test_a_lost_connection_is_said() -> None:
    engine = FakeEngine(ENDLESS, pace=0.01)
    async with serving(engine, drain_seconds=0) as served:
        chat = await connect(served.url)
        answer = asyncio.create_task(chat.ask("one", lambda text: None))
        await until(lambda: engine.running == 1)
        await served.runner.cleanup()
        response = await asyncio.wait_for(answer, PATIENCE)
        assert response["status"] == "cancelled"
        with pytest.raises(UserError, match="closed the connection"):
            await asyncio.wait_for(chat.ask("two", lambda text: None), PATIENCE)
        await chat.close()


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/", "/v1/responses"])
async def test_addresses_in_every_form(suffix: str) -> None:
    async with serving(FakeEngine("yes")) as served:
        chat = await connect(served.url + suffix)
        assert (await chat.ask("one", lambda text: None))["status"] == "completed"
        await chat.close()


async def test_a_gateway_that_loads_says_so() -> None:
    async with serving(None) as served:
        with pytest.raises(UserError, match="still loading"):
            await connect(served.url)


async def test_an_address_needs_no_scheme() -> None:
    async with serving(FakeEngine("yes")) as served:
        chat = await connect(served.url.removeprefix("http://"))
        assert (await chat.ask("one", lambda text: None))["status"] == "completed"
        await chat.close()


@pytest.mark.parametrize(
    ("url", "code", "message"),
    [
        ("http://127.0.0.1:1", "gateway_unreachable", "at http://127.0.0.1:1 (connection refused)"),
        ("http://nobody.invalid", "gateway_unreachable", "(the name is not known)"),
        ("http://a..b", "invalid_url", "is not a URL like http://"),
        ("ftp://127.0.0.1", "invalid_url", "is not a URL like http://"),
        ("http://127.0.0.1:99999", "invalid_url", "is not a URL like http://"),
    ],
)
async def test_why_there_is_no_connection_is_said_in_plain_words(
    url: str, code: str, message: str
) -> None:
    with pytest.raises(UserError) as refused:
        await connect(url)
    assert refused.value.code == code
    assert message in refused.value.message
