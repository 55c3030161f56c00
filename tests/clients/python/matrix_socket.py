"""openai-python's Responses WebSocket client, for the matrix.

matrix_socket.py BASE MODEL KEY FULL KIND: KIND is `sync` or `async`. Every event is in
`socketEvents` as it was on the wire.
"""

from __future__ import annotations

import json
import sys
from contextlib import asynccontextmanager
from typing import Any

from matrix import (
    FLAT_TOOL,
    SLOWLY,
    TOKENS,
    TOP,
    WEATHER,
    WET,
    cells_of,
    failure,
    freed,
    run,
    settled,
)
from openai import AsyncOpenAI, OpenAI

LAST = ("response.completed", "response.incomplete", "response.failed", "error")
FORMAT = {"type": "json_schema", "name": "weather", "schema": WEATHER, "strict": True}


class Client:
    def __init__(self, base: str, model: str, key: str, full: str, kind: str) -> None:
        self.base, self.model, self.key, self.full = base, model, key, full
        self.make: Any = {"sync": OpenAI, "async": AsyncOpenAI}[kind]
        self.events: list[dict[str, Any]] = []

    @asynccontextmanager
    async def connected(self, key: str | None = None) -> Any:
        client = self.make(base_url=self.base, api_key=key or self.key)
        connection = await settled(client.responses.connect().enter())
        try:
            yield connection
        finally:
            await settled(connection.close())
            await settled(client.close())

    async def ask(self, connection: Any, said: Any, **fields: Any) -> list[dict[str, Any]]:
        """The events of one response."""
        asked = {"model": self.model, "input": said, "max_output_tokens": TOKENS, **fields}
        await settled(connection.response.create(**asked))
        return await self.heard(connection)

    async def heard(self, connection: Any) -> list[dict[str, Any]]:
        events: list[dict[str, Any]] = []
        while not events or events[-1]["type"] not in LAST:
            raw = await settled(connection.recv_bytes())
            events.append(json.loads(raw))
            assert connection.parse_event(raw).type == events[-1]["type"]
        self.events += events
        return events

    async def alone(self, said: Any, **fields: Any) -> list[dict[str, Any]]:
        async with self.connected() as connection:
            return await self.ask(connection, said, **fields)

    async def text(self) -> dict[str, Any]:
        events = await self.alone("text W")
        return {"W": {"whole": said_in(events), "deltas": deltas_of(events)}}

    async def turns(self) -> dict[str, Any]:
        async with self.connected() as connection:
            first = await self.ask(connection, "turns W", store=False)
            previous = first[-1]["response"]["id"]
            second = await self.ask(connection, "And?", previous_response_id=previous, store=False)
        return {"W": {"said": [said_in(first), said_in(second)]}}

    async def tools(self) -> dict[str, Any]:
        named = {"type": "function", "name": "get_weather"}
        asked = {"tools": [FLAT_TOOL], "tool_choice": named, "max_output_tokens": 200}
        async with self.connected() as connection:
            events = await self.ask(connection, "tools W", store=False, **asked)
            response = events[-1]["response"]
            (call,) = response["output"]
            result = {
                "type": "function_call_output",
                "call_id": call["call_id"],
                "output": WET,
            }
            answer = await self.ask(
                connection,
                [result],
                previous_response_id=response["id"],
                store=False,
                tools=[FLAT_TOOL],
            )
        deltas = [e["delta"] for e in events if e["type"].endswith("arguments.delta")]
        return {
            "W": {
                "name": call["name"],
                "arguments": call["arguments"],
                "deltas": deltas,
                "answer": said_in(answer),
            }
        }

    async def schema(self) -> dict[str, Any]:
        events = await self.alone("schema W", text={"format": FORMAT}, max_output_tokens=200)
        return {"W": {"parsed": json.loads(said_in(events)), "deltas": deltas_of(events)}}

    async def logprobs(self) -> dict[str, Any]:
        include = ["message.output_text.logprobs"]
        events = await self.alone("logprobs W", include=include, top_logprobs=TOP)
        entries = events[-1]["response"]["output"][0]["content"][0]["logprobs"]
        return {"W": {"logprobs": [entry["logprob"] for entry in entries]}}

    async def stop(self) -> dict[str, Any]:
        whole = said_in(await self.alone("stop W"))
        asked = {"model": self.model, "input": "stop W", "max_output_tokens": TOKENS}
        async with self.connected() as connection:
            # `create` knows no stop; `send` sends what it is given.
            await settled(
                connection.send({"type": "response.create", **asked, "stop": [whole[4:7]]})
            )
            cut = await self.heard(connection)
        return {"W": {"whole": whole, "stop": whole[4:7], "said": said_in(cut)}}

    async def errors(self) -> dict[str, Any]:
        async def opened_by_a_stranger() -> None:
            async with self.connected("wrong"):
                pass

        async with self.connected() as connection:
            found = {
                "model": refused(await self.ask(connection, "Hi", model="gpt-4")),
                "value": refused(await self.ask(connection, "Hi", temperature=9)),
                "full": refused(await self.ask(connection, self.full)),
            }
        return {"W": {**found, "key": await failure(opened_by_a_stranger)}}

    async def cancel(self) -> dict[str, Any]:
        async with self.connected() as connection:
            await settled(connection.response.create(model=self.model, input=f"{SLOWLY} W"))
            for _ in range(8):
                await settled(connection.recv())
        return {"W": {"closed": await freed(self.base, self.key)}}


def said_in(events: list[dict[str, Any]]) -> str:
    parts = [part for item in events[-1]["response"]["output"] for part in item["content"]]
    return "".join(part["text"] for part in parts)


def deltas_of(events: list[dict[str, Any]]) -> list[str]:
    return [event["delta"] for event in events if event["type"] == "response.output_text.delta"]


def refused(events: list[dict[str, Any]]) -> dict[str, Any]:
    error = events[-1]["error"]
    return {"kinds": [events[-1]["type"]], "code": error["code"], "message": error["message"]}


if __name__ == "__main__":
    client = Client(*sys.argv[1:])
    # Responses have no `n`.
    names = ("text", "turns", "tools", "schema", "logprobs", "stop", "errors", "cancel")
    run(cells_of({name: getattr(client, name) for name in names}), socketEvents=client.events)
