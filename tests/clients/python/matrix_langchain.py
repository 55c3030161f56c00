"""langchain-openai over chat completions and over Responses, for the matrix.

matrix_langchain.py BASE MODEL KEY FULL.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from langchain_core.messages import HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI
from matrix import (
    CHAT_TOOL,
    SLOWLY,
    TOKENS,
    TOP,
    WET,
    Weather,
    cells_of,
    failure,
    freed,
    run,
)

WAYS: dict[str, dict[str, Any]] = {"C": {}, "R": {"use_responses_api": True}}


class Client:
    def __init__(self, base: str, model: str, key: str, full: str) -> None:
        self.base, self.model, self.key, self.full = base, model, key, full

    def chat(self, way: str, **more: Any) -> ChatOpenAI:
        asked = {"base_url": self.base, "api_key": self.key, "model": self.model}
        return ChatOpenAI(**{**asked, "max_retries": 0, "max_tokens": TOKENS, **WAYS[way], **more})

    def each(self, feature: Any) -> dict[str, Any]:
        return {way: feature(way) for way in WAYS}

    def text(self) -> dict[str, Any]:
        def of(way: str) -> dict[str, Any]:
            whole = self.chat(way).invoke(f"text {way}")
            chunks = self.chat(way).stream(f"text {way}")
            return {"whole": str(whole.text), "deltas": [t for c in chunks if (t := str(c.text))]}

        return self.each(of)

    def turns(self) -> dict[str, Any]:
        def of(way: str) -> dict[str, Any]:
            asked = HumanMessage(f"turns {way}")
            first = self.chat(way).invoke([asked])
            second = self.chat(way).invoke([asked, first, HumanMessage("And?")])
            told = [str(first.text), str(second.text)]
            if way == "R":
                last = first.response_metadata["id"]
                more = self.chat(way).bind(previous_response_id=last)
                told.append(str(more.invoke("And?").text))
            return {"said": told}

        return self.each(of)

    def tools(self) -> dict[str, Any]:
        def of(way: str) -> dict[str, Any]:
            bound = self.chat(way, max_tokens=200).bind_tools(
                [CHAT_TOOL], tool_choice="get_weather", parallel_tool_calls=False
            )
            asked = HumanMessage(f"tools {way}")
            message = bound.invoke([asked])
            (call,) = message.tool_calls
            chunks = [c for chunk in bound.stream([asked]) for c in chunk.tool_call_chunks]
            result = ToolMessage(WET, tool_call_id=call["id"])
            answer = self.chat(way).bind_tools([CHAT_TOOL]).invoke([asked, message, result])
            return {
                "name": call["name"],
                "arguments": json.dumps(call["args"]),
                "deltas": [chunk["args"] for chunk in chunks if chunk["args"]],
                "answer": str(answer.text),
            }

        return self.each(of)

    def schema(self) -> dict[str, Any]:
        def of(way: str) -> dict[str, Any]:
            model = self.chat(way, max_tokens=200).with_structured_output(Weather)
            return {"parsed": model.invoke(f"schema {way}").model_dump()}

        return self.each(of)

    def logprobs(self) -> dict[str, Any]:
        scored = self.chat("C", logprobs=True, top_logprobs=TOP).invoke("logprobs C")
        told = scored.response_metadata["logprobs"]["content"]
        return {"C": {"logprobs": [entry["logprob"] for entry in told]}}

    def stop(self) -> dict[str, Any]:
        whole = str(self.chat("C").invoke("stop C").text)
        cut = self.chat("C").invoke("stop C", stop=[whole[4:7]])
        return {"C": {"whole": whole, "stop": whole[4:7], "said": str(cut.text)}}

    def n(self) -> dict[str, Any]:
        found = self.chat("C", n=3, temperature=1, seed=5).generate([[HumanMessage("n C")]])
        return {"C": {"texts": [str(each.text) for each in found.generations[0]]}}

    async def errors(self) -> dict[str, Any]:
        async def of(way: str) -> dict[str, Any]:
            chats = {
                "model": self.chat(way, model="gpt-4"),
                "value": self.chat(way, temperature=9),
                "key": self.chat(way, api_key="wrong"),
            }
            found = {
                name: await failure(lambda chat=chat: chat.invoke("Hi"))
                for name, chat in chats.items()
            }
            return {**found, "full": await failure(lambda: self.chat(way).invoke(self.full))}

        return {way: await of(way) for way in WAYS}

    async def cancel(self) -> dict[str, Any]:
        async def of(way: str) -> dict[str, Any]:
            stream = self.chat(way, max_tokens=1500).stream(f"{SLOWLY} {way}")
            for _ in range(6):
                next(stream)
            stream.close()
            return {"closed": await freed(self.base, self.key)}

        return {way: await of(way) for way in WAYS}


if __name__ == "__main__":
    client = Client(*sys.argv[1:])
    names = ("text", "turns", "tools", "schema", "logprobs", "stop", "n", "errors", "cancel")
    run(cells_of({name: getattr(client, name) for name in names}))
