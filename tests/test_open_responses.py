"""The requests of the public Open Responses acceptance suite, and what it asks of the answers.

Of its 17 tests one sends nothing (it checks its own schema), one wants a model that sees images,
and one calls a tool. The others are here, in its order and over the transport it uses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import aiohttp
import orjson
import pytest

from tests.fake_engine import MODEL, FakeEngine
from tests.http_serving import Served, answer_of, serving, socket_to
from tests.open_responses import check_compacted, check_event, check_response

Turn = dict[str, Any] | Callable[[list[list[dict[str, Any]]]], dict[str, Any]]
"""A request, or what makes one of the events of the turns before."""


def message(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": content, **more}


def created(**fields: Any) -> dict[str, Any]:
    return {"type": "response.create", "model": MODEL, **fields}


async def post(served: Served, path: str = "responses", **fields: Any) -> tuple[int, Any]:
    async with (
        aiohttp.ClientSession(headers={"Authorization": "Bearer test"}) as session,
        session.post(f"{served.base}/{path}", json=fields) as response,
    ):
        if response.content_type != "text/event-stream":
            return response.status, await response.json()
        blocks = (await response.text()).removesuffix("\n\n").split("\n\n")
        return response.status, [orjson.loads(block.partition("data: ")[2]) for block in blocks]


async def session_of(served: Served, *turns: Turn) -> list[list[dict[str, Any]]]:
    """All turns on one socket, each sent when the one before has ended."""
    done: list[list[dict[str, Any]]] = []
    headers = {"Authorization": "Bearer test", "Content-Type": "application/json"}
    async with socket_to(served, headers=headers) as socket:
        for turn in turns:
            await socket.send_json(turn(done) if callable(turn) else turn)
            done.append(await answer_of(socket))
            for event in done[-1]:
                check_event(event)
    return done


def completed(events: list[dict[str, Any]]) -> dict[str, Any]:
    response: dict[str, Any] = events[-1]["response"]
    check_response(response)
    assert response["status"] == "completed"
    return response


def code_of(events: list[dict[str, Any]]) -> str:
    code: str = events[-1]["error"]["code"]
    return code


def continuing(turns: list[list[dict[str, Any]]], **fields: Any) -> dict[str, Any]:
    previous = turns[0][-1]["response"]["id"]
    return created(store=False, previous_response_id=previous, **fields)


PLAIN = [
    [message("user", "Say hello in exactly 3 words.")],
    [
        message("assistant", "I should answer with the saved number.", phase="commentary"),
        message("assistant", "The number is four.", phase="final_answer"),
        message("user", "Repeat only the number."),
    ],
    [
        message("system", "You are a pirate. Always respond in pirate speak."),
        message("user", "Say hello."),
    ],
    [
        message("user", "My name is Alice."),
        message("assistant", "Hello Alice! Nice to meet you. How can I help you today?"),
        message("user", "What is my name?"),
    ],
]


@pytest.mark.parametrize("items", PLAIN, ids=["basic", "phases", "system", "turns"])
async def test_whole_responses(items: list[dict[str, Any]]) -> None:
    async with serving(FakeEngine("Four.")) as served:
        status, response = await post(served, model=MODEL, input=items)
    assert status == 200
    check_response(response)
    assert response["status"] == "completed"
    assert response["output"]


async def test_a_streamed_response() -> None:
    async with serving(FakeEngine("1 2 3")) as served:
        items = [message("user", "Count from 1 to 5.")]
        _, events = await post(served, model=MODEL, input=items, stream=True)
    for event in events:
        check_event(event)
    completed(events)


async def test_compaction() -> None:
    items = [
        message("user", "We agreed to launch on Tuesday and notify support first."),
        message("assistant", "Understood. The launch is Tuesday, with support notified."),
    ]
    async with serving(FakeEngine("Tuesday; support first.")) as served:
        status, compacted = await post(
            served, "responses/compact", model=MODEL, prompt_cache_key="test", input=items
        )
        missing, error = await post(served, "responses/compact", input=items)
    assert status == 200
    check_compacted(compacted)
    assert "compaction" in [item["type"] for item in compacted["output"]]
    assert missing == 400
    assert error["error"]["param"] == "model"


async def test_an_image_is_refused_by_name() -> None:
    content = [
        {"type": "input_text", "text": "What do you see?"},
        {"type": "input_image", "image_url": "data:image/png;base64,AAAA"},
    ]
    async with serving(FakeEngine()) as served:
        status, body = await post(served, model=MODEL, input=[message("user", content)])
    assert (status, body["error"]["param"]) == (400, "input[0].content[1].type")


async def test_a_response_over_a_socket() -> None:
    async with serving(FakeEngine("1 2 3")) as served:
        (turn,) = await session_of(served, created(input=[message("user", "Count.")]))
    completed(turn)


async def test_responses_one_after_another() -> None:
    async with serving(FakeEngine("first")) as served:
        turns = await session_of(
            served,
            created(store=False, input="Reply with exactly: first"),
            created(store=False, input="Reply with exactly: second"),
        )
    assert len({completed(turn)["id"] for turn in turns}) == 2


async def test_a_continuation() -> None:
    engine = FakeEngine("OK")
    async with serving(engine) as served:
        turns = await session_of(
            served,
            created(store=False, input="Remember the code word: cobalt."),
            lambda turns: continuing(turns, input="What is the code word?"),
        )
    assert completed(turns[1])["previous_response_id"] == completed(turns[0])["id"]
    assert "cobalt" in engine.prompt()


async def test_an_unstored_response_is_lost_with_its_connection() -> None:
    async with serving(FakeEngine("OK")) as served:
        first = await session_of(served, created(store=False, input="Remember: copper."))
        again = await session_of(
            served,
            lambda _: continuing(first, input="Go on."),
            created(store=False, input=[message("user", "Start anew.")]),
        )
    assert code_of(again[0]) == "previous_response_not_found"
    assert completed(again[1])["previous_response_id"] is None


async def test_a_response_that_never_was() -> None:
    async with serving(FakeEngine("OK")) as served:
        (turn,) = await session_of(
            served, created(store=False, previous_response_id="resp_missing", input="x")
        )
    assert code_of(turn) == "previous_response_not_found"


async def test_a_failed_continuation_forgets_what_it_continued() -> None:
    output = {
        "type": "function_call_output",
        "call_id": "call_missing",
        "output": "No tool call of this id was made.",
    }
    async with serving(FakeEngine("OK")) as served:
        turns = await session_of(
            served,
            created(store=False, input="Remember the code word: ember."),
            lambda turns: continuing(turns, input=[output]),
            lambda turns: continuing(turns, input="Go on after the failed turn."),
        )
    assert turns[1][-1]["type"] in ("error", "response.failed")
    assert code_of(turns[2]) == "previous_response_not_found"


async def test_a_new_chain_from_a_compaction() -> None:
    items = [
        message("user", [{"type": "input_text", "text": "Remember the code word: slate."}]),
        message("assistant", [{"type": "output_text", "text": "OK."}]),
        message("user", [{"type": "input_text", "text": "Compress this conversation."}]),
    ]
    async with serving(FakeEngine("The code word is slate.")) as served:
        _, compacted = await post(served, "responses/compact", model=MODEL, input=items)
        going_on = [*compacted["output"], message("user", "Continue from here.")]
        (turn,) = await session_of(served, created(store=False, input=going_on, tools=[]))
    assert completed(turn)["previous_response_id"] is None


async def test_all_of_them_at_once() -> None:
    """The suite starts its tests together."""
    engine = FakeEngine("OK", pace=0.002)
    async with serving(engine) as served:
        posted = asyncio.gather(*(post(served, model=MODEL, input=items) for items in PLAIN))
        sockets = asyncio.gather(
            *(session_of(served, created(input="Hi"), created(input="Hi")) for _ in range(7))
        )
        for status, response in await posted:
            assert status == 200
            check_response(response)
        for turns in await sockets:
            for turn in turns:
                completed(turn)
    assert engine.running == 0
