"""Kept prefixes on the wire: a key is told of its own, on every road to the engine."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.engine.engine import Engine
from gateway.engine.options import EngineOptions
from models.package import load_package
from tests.http_serving import Served, ask, serving, socket_to

PROMPT = "the other and the one and the other and the one and the"
KEYS = ("first-key", "second-key")
FIRST, SECOND = ({"Authorization": f"Bearer {key}"} for key in KEYS)

Ask = Callable[[Served, dict[str, str]], Awaitable[int]]


@asynccontextmanager
async def running(
    path: Path, *, share: bool = False, keys: tuple[str, ...] = KEYS
) -> AsyncIterator[Served]:
    options = EngineOptions(slots=4, drafter="off", share_prefixes=share)
    engine = await Engine.start(load_package(path), options)
    try:
        async with serving(engine, api_keys=keys) as served:
            yield served
    finally:
        await engine.close()


async def posted(served: Served, headers: dict[str, str], path: str, **body: Any) -> Any:
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.post(f"{served.base}/{path}", json=body) as response,
    ):
        assert response.status == 200, await response.text()
        return await response.json()


def cached_input(response: dict[str, Any]) -> int:
    found: int = response["usage"]["input_tokens_details"]["cached_tokens"]
    return found


def cached_prompt(response: dict[str, Any]) -> int:
    found: int = response["usage"]["prompt_tokens_details"]["cached_tokens"]
    return found


async def by_response(served: Served, headers: dict[str, str]) -> int:
    told = await posted(served, headers, "responses", input=PROMPT, max_output_tokens=2)
    return cached_input(told)


async def by_socket(served: Served, headers: dict[str, str]) -> int:
    async with socket_to(served, headers=headers) as socket:
        events = await ask(socket, input=PROMPT, max_output_tokens=2)
    return cached_input(events[-1]["response"])


async def by_completion(served: Served, headers: dict[str, str]) -> int:
    return cached_prompt(await posted(served, headers, "completions", prompt=PROMPT, max_tokens=2))


async def by_reading_alone(served: Served, headers: dict[str, str]) -> int:
    return cached_prompt(
        await posted(served, headers, "completions", prompt=PROMPT, max_tokens=0, echo=True)
    )


ROADS: dict[str, Ask] = {
    "response": by_response,
    "socket": by_socket,
    "completion": by_completion,
    "reading": by_reading_alone,
}


@pytest.mark.parametrize("road", ROADS)
async def test_a_key_is_told_of_its_own_prefixes_alone(tiny_package: Path, road: str) -> None:
    once = ROADS[road]
    async with running(tiny_package) as served:
        assert await once(served, FIRST) == 0
        assert await once(served, SECOND) == 0
        assert await once(served, FIRST) > 0
        assert await once(served, SECOND) > 0


@pytest.mark.parametrize("road", ROADS)
async def test_keys_may_share_what_is_kept(tiny_package: Path, road: str) -> None:
    once = ROADS[road]
    async with running(tiny_package, share=True) as served:
        assert await once(served, FIRST) == 0
        assert await once(served, SECOND) > 0


async def test_roads_of_one_key_find_the_same(tiny_package: Path) -> None:
    async with running(tiny_package) as served:
        assert await by_socket(served, FIRST) == 0
        assert await by_response(served, FIRST) > 0
        assert await by_response(served, SECOND) == 0


async def test_the_prompts_of_a_batch_are_their_keys(tiny_package: Path) -> None:
    """Two alike in one request: the second finds the first one's, and no other key either."""
    async with running(tiny_package) as served:
        for headers in (FIRST, SECOND):
            first = await posted(
                served, headers, "completions", prompt=[PROMPT, "one"], max_tokens=2
            )
            assert cached_prompt(first) == 0
            again = await posted(
                served, headers, "completions", prompt=[PROMPT, "one"], max_tokens=2
            )
            assert cached_prompt(again) > 0


async def test_a_continuation_is_warm_for_its_key_alone(tiny_package: Path) -> None:
    async with running(tiny_package) as served:
        first = await posted(served, FIRST, "responses", input=PROMPT, max_output_tokens=8)
        text = first["output"][0]["content"][0]["text"]
        other = await posted(
            served, SECOND, "responses", input=f"{PROMPT}{text} and", max_output_tokens=2
        )
        assert cached_input(other) == 0
        following = await posted(
            served,
            FIRST,
            "responses",
            input=" and",
            previous_response_id=first["id"],
            max_output_tokens=2,
        )
        usage = first["usage"]
        assert cached_input(following) >= usage["input_tokens"] + usage["output_tokens"] - 1


@pytest.mark.parametrize("streamed", [False, True], ids=["body", "socket"])
async def test_a_prompt_may_be_read_before_it_is_answered(
    tiny_package: Path, streamed: bool
) -> None:
    fields = {"input": PROMPT, "generate": False, "min_tokens": 2, "max_output_tokens": 5}
    async with running(tiny_package) as served:
        if streamed:
            async with socket_to(served, headers=FIRST) as socket:
                events = await ask(socket, **fields)
                types = [event["type"] for event in events]
                assert types == [
                    "response.created",
                    "response.in_progress",
                    "response.completed",
                ]
                warm = events[-1]["response"]
        else:
            warm = await posted(served, FIRST, "responses", **fields)
        assert (warm["status"], warm["output"], warm["error"]) == ("completed", [], None)
        assert warm["usage"]["output_tokens"] == 0
        assert cached_input(warm) == 0
        read = warm["usage"]["input_tokens"]
        asked = await posted(served, FIRST, "responses", input=PROMPT, max_output_tokens=2)
        assert cached_input(asked) == read - 1
        following = await posted(
            served,
            FIRST,
            "responses",
            input=" and more",
            previous_response_id=warm["id"],
            max_output_tokens=2,
        )
        assert following["status"] == "incomplete"
        # All but what asks for the answer.
        assert cached_input(following) >= read - 8


async def test_a_form_that_nothing_is_to_have_is_not_made(tiny_package: Path) -> None:
    form = {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}}
    async with running(tiny_package) as served:
        warm = await posted(served, FIRST, "responses", input=PROMPT, generate=False, text=form)
        assert (warm["status"], warm["output"]) == ("completed", [])


async def test_without_keys_everybody_is_one_owner(tiny_package: Path) -> None:
    async with running(tiny_package, keys=()) as served:
        assert await by_response(served, {}) == 0
        assert await by_socket(served, {}) > 0
        assert await by_response(served, FIRST) > 0, "a key that nobody asked for names nobody"
