"""openai-python over HTTP, for the matrix: Responses, chat completions, completions.

matrix_openai.py BASE MODEL KEY FULL KIND: KIND is `sync` or `async`. Whatever came over the wire is
in `events` and `chunks`, for the types to be held to.
"""

from __future__ import annotations

import sys
from typing import Any

from matrix import (
    CHAT_TOOL,
    FLAT_TOOL,
    SLOWLY,
    TOKENS,
    TOP,
    WET,
    Weather,
    cells_of,
    failure,
    freed,
    gathered,
    run,
    settled,
)
from openai import AsyncOpenAI, OpenAI, pydantic_function_tool

LOGPROBS = "message.output_text.logprobs"


class Client:
    def __init__(self, base: str, model: str, key: str, full: str, kind: str) -> None:
        self.base, self.model, self.key, self.full = base, model, key, full
        self.make = {"sync": OpenAI, "async": AsyncOpenAI}[kind]
        self.client: Any = self.make(base_url=base, api_key=key, max_retries=0)
        self.stranger: Any = self.make(base_url=base, api_key="wrong", max_retries=0)
        self.events: list[dict[str, Any]] = []
        self.chunks: list[dict[str, Any]] = []

    async def responses(self, said: Any, **fields: Any) -> Any:
        asked = {"model": self.model, "input": said, "max_output_tokens": TOKENS, **fields}
        found = self.client.responses.create(**asked)
        if not fields.get("stream"):
            return await settled(found)
        events = await gathered(found)
        self.events += [event.to_dict() for event in events]
        return events

    async def chat(self, said: Any, **fields: Any) -> Any:
        messages = [{"role": "user", "content": said}] if isinstance(said, str) else said
        asked = {"model": self.model, "messages": messages, "max_tokens": TOKENS, **fields}
        return await self._chunks(self.client.chat.completions.create(**asked), fields)

    async def completion(self, said: str, **fields: Any) -> Any:
        asked = {"model": self.model, "prompt": said, "max_tokens": TOKENS, **fields}
        return await self._chunks(self.client.completions.create(**asked), fields)

    async def _chunks(self, found: Any, fields: dict[str, Any]) -> Any:
        answers = await gathered(found) if fields.get("stream") else await settled(found)
        told = answers if isinstance(answers, list) else [answers]
        self.chunks += [answer.to_dict() for answer in told]
        return answers

    async def text(self) -> dict[str, Any]:
        whole = await self.responses("text R")
        chat, completion = await self.chat("text C"), await self.completion("text T")
        streamed = await self.responses("text R", stream=True)
        chunks = await self.chat("text C", stream=True)
        pieces = await self.completion("text T", stream=True)
        return {
            "R": {"whole": whole.output_text, "deltas": text_deltas(streamed)},
            "C": {"whole": chat.choices[0].message.content, "deltas": content_of(chunks)},
            "T": {
                "whole": completion.choices[0].text,
                "deltas": [choice.text for chunk in pieces for choice in chunk.choices],
            },
        }

    async def turns(self) -> dict[str, Any]:
        first = await self.responses("turns R")
        second = await self.responses("And?", previous_response_id=first.id)
        items = [{"role": "user", "content": "turns R"}, *first.output]
        again = await self.responses([*items, {"role": "user", "content": "And?"}])
        asked = {"role": "user", "content": "turns C"}
        chat = (await self.chat([asked])).choices[0].message
        more = await self.chat([asked, chat, {"role": "user", "content": "And?"}])
        return {
            "R": {"said": [first.output_text, second.output_text, again.output_text]},
            "C": {"said": [chat.content, more.choices[0].message.content]},
        }

    async def tools(self) -> dict[str, Any]:
        return {"R": await self.responses_tools(), "C": await self.chat_tools()}

    async def responses_tools(self) -> dict[str, Any]:
        named = {"type": "function", "name": "get_weather"}
        asked = {"tools": [FLAT_TOOL], "tool_choice": named, "max_output_tokens": 200}
        events = await self.responses("tools R", **asked, stream=True)
        deltas = [e.delta for e in events if e.type == "response.function_call_arguments.delta"]
        (call,) = events[-1].response.output
        result = {"type": "function_call_output", "call_id": call.call_id, "output": WET}
        answer = await self.responses(
            [result], previous_response_id=events[-1].response.id, tools=[FLAT_TOOL]
        )
        return {
            "name": call.name,
            "arguments": call.arguments,
            "deltas": deltas,
            "answer": answer.output_text,
        }

    async def chat_tools(self) -> dict[str, Any]:
        tool = pydantic_function_tool(Weather, name="get_weather")
        said: list[Any] = [{"role": "user", "content": "tools C"}]
        parsed = await settled(
            self.client.chat.completions.parse(
                model=self.model,
                messages=said,
                tools=[tool],
                tool_choice="required",
                parallel_tool_calls=False,
                max_tokens=200,
            )
        )
        (call,) = parsed.choices[0].message.tool_calls
        asked = {"tools": [tool], "tool_choice": "required", "max_tokens": 200}
        chunks = await self.chat(said, **asked, parallel_tool_calls=False, stream=True)
        calls = [
            each
            for chunk in chunks
            for choice in chunk.choices
            for each in choice.delta.tool_calls or ()
        ]
        result = {"role": "tool", "tool_call_id": call.id, "content": WET}
        said += [parsed.choices[0].message, result]
        answer = await self.chat(said, tools=[CHAT_TOOL])
        return {
            "name": call.function.name,
            "arguments": call.function.parsed_arguments.model_dump_json(),
            "deltas": [each.function.arguments for each in calls if each.function.arguments],
            "answer": answer.choices[0].message.content,
        }

    async def schema(self) -> dict[str, Any]:
        response = await settled(
            self.client.responses.parse(
                model=self.model, input="schema R", text_format=Weather, max_output_tokens=200
            )
        )
        chat = await settled(
            self.client.chat.completions.parse(
                model=self.model,
                messages=[{"role": "user", "content": "schema C"}],
                response_format=Weather,
                max_tokens=200,
            )
        )
        return {
            "R": {"parsed": response.output_parsed.model_dump()},
            "C": {"parsed": chat.choices[0].message.parsed.model_dump()},
        }

    async def logprobs(self) -> dict[str, Any]:
        events = await self.responses(
            "logprobs R", include=[LOGPROBS], top_logprobs=TOP, stream=True
        )
        chat = await self.chat("logprobs C", logprobs=True, top_logprobs=TOP)
        text = await self.completion("logprobs T", logprobs=TOP)
        entries = events[-1].response.output[0].content[0].logprobs
        return {
            "R": {"logprobs": [entry.logprob for entry in entries]},
            "C": {"logprobs": [entry.logprob for entry in chat.choices[0].logprobs.content]},
            "T": {"logprobs": text.choices[0].logprobs.token_logprobs},
        }

    async def stop(self) -> dict[str, Any]:
        whole = (await self.responses("stop R")).output_text
        mark = whole[4:7]
        cut = await self.responses("stop R", extra_body={"stop": [mark]})
        chat = (await self.chat("stop C")).choices[0].message.content
        short = await self.chat("stop C", stop=chat[4:7])
        text = (await self.completion("stop T")).choices[0].text
        brief = await self.completion("stop T", stop=[text[4:7]])
        return {
            "R": {"whole": whole, "stop": mark, "said": cut.output_text},
            "C": {"whole": chat, "stop": chat[4:7], "said": short.choices[0].message.content},
            "T": {"whole": text, "stop": text[4:7], "said": brief.choices[0].text},
        }

    async def n(self) -> dict[str, Any]:
        asked = {"n": 3, "temperature": 1, "seed": 5}
        chat = await self.chat("n C", **asked)
        chunks = await self.chat("n C", **asked, stream=True)
        text = await self.completion("n T", **asked)
        streamed = ["".join(content_of(chunks, index)) for index in range(3)]
        return {
            "C": {"texts": [c.message.content for c in chat.choices], "streamed": streamed},
            "T": {"texts": [choice.text for choice in text.choices]},
        }

    async def errors(self) -> dict[str, Any]:
        ways = {"R": self.responses, "C": self.chat, "T": self.completion}
        found = {}
        for way, ask in ways.items():
            found[way] = {
                "model": await failure(lambda ask=ask: ask("Hi", model="gpt-4")),
                "value": await failure(lambda ask=ask: ask("Hi", temperature=9)),
                "full": await failure(lambda ask=ask: ask(self.full)),
            }
        stranger = self.stranger.models
        found["R"]["key"] = await failure(lambda: stranger.retrieve(self.model))
        return found

    async def cancel(self) -> dict[str, Any]:
        creates = {
            "R": (self.client.responses.create, {"input": f"{SLOWLY} R"}),
            "C": (
                self.client.chat.completions.create,
                {"messages": [{"role": "user", "content": f"{SLOWLY} C"}]},
            ),
            "T": (self.client.completions.create, {"prompt": f"{SLOWLY} T"}),
        }
        found: dict[str, Any] = {}
        for way, (create, fields) in creates.items():
            stream = await settled(create(model=self.model, stream=True, **fields))
            await first_of(stream, 4)
            await settled(stream.close())
            found[way] = {"closed": await freed(self.base, self.key)}
        begun = await settled(
            self.client.responses.create(
                model=self.model, input=f"{SLOWLY} in the background", background=True
            )
        )
        ended = await settled(self.client.responses.cancel(begun.id))
        found["R"]["background"] = await freed(self.base, self.key)
        found["R"]["status"] = ended.status
        return found


def text_deltas(events: list[Any]) -> list[str]:
    return [event.delta for event in events if event.type == "response.output_text.delta"]


def content_of(chunks: list[Any], index: int = 0) -> list[str]:
    choices = [choice for chunk in chunks for choice in chunk.choices if choice.index == index]
    return [choice.delta.content for choice in choices if choice.delta.content]


async def first_of(stream: Any, count: int) -> None:
    if hasattr(stream, "__anext__"):
        for _ in range(count):
            await anext(stream)
    else:
        for _ in range(count):
            next(stream)


if __name__ == "__main__":
    client = Client(*sys.argv[1:])
    names = ("text", "turns", "tools", "schema", "logprobs", "stop", "n", "errors", "cancel")
    features = {name: getattr(client, name) for name in names}
    run(cells_of(features), events=client.events, chunks=client.chunks)
